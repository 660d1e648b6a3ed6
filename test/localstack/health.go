// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// healthTimeout bounds one question about health.
const healthTimeout = 3 * time.Second

// kubernetesHealth tells which machines run a kube-apiserver that takes requests. Before there is an administrator
// (the cluster is being made) any answer over HTTP counts: kube-apiservers of Talos know no anonymous user.
type kubernetesHealth struct {
	mu     sync.Mutex
	client *http.Client
}

// trust makes the checks exact.
func (k *kubernetesHealth) trust(config *rest.Config) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CAData) {
		return fmt.Errorf("administrator's kubeconfig: no certificate authority")
	}
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.client = newHealthClient(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	return nil
}

// newHealthClient makes a connection for each question: a health check is about new connections.
func newHealthClient(config *tls.Config) *http.Client {
	return &http.Client{Timeout: healthTimeout, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}

func (k *kubernetesHealth) check(ctx context.Context, address string) error {
	k.mu.Lock()
	client := k.client
	k.mu.Unlock()
	if client != nil {
		return healthy(ctx, client, "https://"+address+"/readyz", http.StatusOK)
	}
	// Only whether somebody answers is asked; nothing is sent that anyone could misuse, and the answer isn't trusted.
	unverified := newHealthClient(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	return healthy(ctx, unverified, "https://"+address+"/readyz", http.StatusOK, http.StatusUnauthorized, http.StatusForbidden)
}

// healthy asks a URL and accepts these statuses.
func healthy(ctx context.Context, client *http.Client, url string, accepted ...int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	for _, status := range accepted {
		if response.StatusCode == status {
			return nil
		}
	}
	return fmt.Errorf("%s answers %s", url, response.Status)
}
