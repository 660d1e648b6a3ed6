// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Person is who all requests of the load are from: someone who may do everything by Kubernetes' RBAC, and whom the servers
// have to ask the kube-apiserver about.
const Person = "chaos"

// config is for a client of what listens at an address.
func (w *World) config(address string, ca *authority, cert, key string) *rest.Config {
	return &rest.Config{
		Host: "https://" + address, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.pem, CertFile: cert, KeyFile: key},
	}
}

// Config is for a client, through the kube-apiserver.
func (w *World) Config() *rest.Config {
	return w.config(w.Front.Addr(), w.kubeCA, w.clientCert, w.clientKey)
}

// Direct is for a client of one ichor-apiserver, without the kube-apiserver before it.
func (w *World) Direct(n int) *rest.Config {
	config := w.config(w.KubeIchor[n].Addr(), w.servingCA, w.clientCert, w.clientKey)
	config.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	return config
}

// isReady asks an ichor-apiserver at an address whether it is ready, over a connection of its own.
func (w *World) isReady(ctx context.Context, address string) error {
	roots := x509.NewCertPool()
	roots.AddCert(w.servingCA.parsed)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	_, err := ask(ctx, &http.Client{Transport: transport, Timeout: 5 * time.Second}, "https://"+address+"/readyz")
	return err
}

// isKubeReady asks the kube-apiserver, who knows no anonymous user, over a connection of its own.
func (w *World) isKubeReady(ctx context.Context, address string) error {
	certificate, err := tls.LoadX509KeyPair(w.masterCert, w.masterKey)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(w.kubeCA.parsed)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	_, err = ask(ctx, &http.Client{Transport: transport, Timeout: 5 * time.Second}, "https://"+address+"/readyz")
	return err
}

func ask(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // reading only
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %.500s", url, response.Status, body)
	}
	return body, err
}

// AwaitReady waits until every server says that it is ready, with everything mended.
func (w *World) AwaitReady(ctx context.Context) error {
	if err := until(ctx, "the kube-apiserver is ready", ready(w.Config())); err != nil {
		return err
	}
	for n := range Replicas {
		if err := until(ctx, IchorName(n)+" is ready", func(ctx context.Context) error { return w.isReady(ctx, w.KubeIchor[n].Addr()) }); err != nil {
			return err
		}
	}
	return nil
}

// Size is how large a server is.
type Size struct {
	Name string `json:"name"`
	// Starts is how often it was started.
	Starts     int `json:"starts"`
	Goroutines int `json:"goroutines"`
	// HeapMiB is the heap that is in use after a garbage collection, ResidentMiB what the process holds of the memory.
	HeapMiB     float64 `json:"heapMiB"`
	ResidentMiB float64 `json:"residentMiB"`
}

// SizeOf measures an ichor-apiserver after a garbage collection.
func (w *World) SizeOf(ctx context.Context, n int) (Size, error) {
	size := Size{Name: IchorName(n), Starts: w.Ichor[n].Starts()}
	client, err := rest.HTTPClientFor(w.Direct(n))
	if err != nil {
		return size, err
	}
	defer client.CloseIdleConnections()
	host := "https://" + w.KubeIchor[n].Addr()
	if _, err := ask(ctx, client, host+"/debug/pprof/heap?gc=1"); err != nil {
		return size, fmt.Errorf("collect the garbage of %s: %w", size.Name, err)
	}
	text, err := ask(ctx, client, host+"/metrics")
	if err != nil {
		return size, fmt.Errorf("metrics of %s: %w", size.Name, err)
	}
	const mebi = 1 << 20
	size.Goroutines = int(metric(text, "go_goroutines"))
	size.HeapMiB = metric(text, "go_memstats_heap_alloc_bytes") / mebi
	size.ResidentMiB = metric(text, "process_resident_memory_bytes") / mebi
	return size, nil
}

// metric reads a metric that has no labels.
func metric(text []byte, name string) float64 {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			number, err := strconv.ParseFloat(value, 64)
			if err == nil {
				return number
			}
		}
	}
	return 0
}
