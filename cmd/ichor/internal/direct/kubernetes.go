// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"maesh.dev/ichor/pkg/secretsbundle"
)

const (
	// apiTimeout bounds one question to the Kubernetes API. A server without etcd takes long to say so.
	apiTimeout = 5 * time.Second
	// defaultAPIPort is where a control plane's own Kubernetes API listens unless its configuration says otherwise.
	// Source: Talos, pkg/machinery/constants.DefaultControlPlanePort.
	defaultAPIPort = 6443
	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
)

// apiURLs are where the Kubernetes API may answer: on each control plane, and where the kubeconfig says.
func apiURLs(views []View, configured string) []string {
	var urls []string
	peers := peersOf(views)
	for i := range views {
		v := &views[i]
		if v.Survey == nil || !v.Survey.ControlPlane {
			continue
		}
		port := defaultAPIPort
		for _, peer := range peers {
			if peer.NodeID == v.Survey.NodeID && peer.APIPort != 0 {
				port = peer.APIPort
			}
		}
		urls = append(urls, "https://"+net.JoinHostPort(v.Address.String(), strconv.Itoa(port)))
	}
	if configured != "" && !slices.Contains(urls, configured) {
		urls = append(urls, configured)
	}
	return urls
}

// AskKubernetes asks whether the Kubernetes API is ready. It trusts the bundle's authority alone, so that nothing else
// passes for it.
func AskKubernetes(ctx context.Context, views []View, configured string, client secretsbundle.ClientPair) ([]API, error) {
	pair, err := tls.X509KeyPair(client.Certificate, client.Key)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(client.CA) {
		return nil, errors.New("the client certificate for the Kubernetes API can't be used") // the cause may quote the key
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}
	defer transport.CloseIdleConnections()
	asker := &http.Client{
		Transport: transport, Timeout: apiTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	urls := apiURLs(views, configured)
	apis := make([]API, len(urls))
	var group sync.WaitGroup
	for i, url := range urls { // at most maxNodes
		group.Go(func() { apis[i] = askReady(ctx, asker, url) })
	}
	group.Wait()
	return apis, nil
}

func askReady(ctx context.Context, client *http.Client, base string) API {
	api := API{URL: base}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/readyz", http.NoBody)
	if err != nil {
		api.Message = "not an address"
		return api
	}
	response, err := client.Do(request)
	if err != nil {
		api.Message = withoutURL(err)
		return api
	}
	defer response.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	api.Answers = true
	switch {
	case err != nil:
		api.Message = withoutURL(err)
	case response.StatusCode == http.StatusOK:
		api.Ready = true
	default:
		api.Message = fmt.Sprintf("HTTP status %d", response.StatusCode)
		if checks := failedChecks(string(body)); len(checks) > 0 {
			api.Message += ", failed: " + strings.Join(checks, ", ")
		}
	}
	return api
}

// withoutURL is what went wrong without the address, for that stands beside it.
func withoutURL(err error) string {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return strings.Join(strings.Fields(causeOf(err)), " ")
}

// maxChecks bounds how many failed checks are named.
const maxChecks = 8

// failedChecks are the names in lines like "[-]etcd failed: reason withheld". Source: k8s.io/apiserver, healthz.
func failedChecks(body string) []string {
	var names []string
	for line := range strings.Lines(body) {
		rest, failed := strings.CutPrefix(line, "[-]")
		name, _, _ := strings.Cut(rest, " ")
		if failed && isCheckName(name) && len(names) < maxChecks {
			names = append(names, name)
		}
	}
	return names
}

func isCheckName(name string) bool {
	return name != "" && len(name) < 80 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == ""
}
