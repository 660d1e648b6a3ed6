// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"time"
)

// callTimeout bounds one call; the longest is a list of everything on a busy machine.
const callTimeout = 2 * time.Minute

// caller is one client with connections of its own: it sends bytes and takes bytes. Answers are compressed where
// client-go's would be.
type caller struct {
	http *http.Client
	base string
}

// callers makes n clients of a user.
func (w *world) callers(user pair, n int) ([]*caller, error) {
	cert, err := tls.X509KeyPair(user.cert, user.key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.serving.pem)
	var out []*caller
	for range n {
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 2,
		}
		w.transports = append(w.transports, transport)
		out = append(out, &caller{&http.Client{Transport: transport}, w.kubeURL})
	}
	return out, nil
}

// refusal is an answer that isn't a success.
type refusal struct {
	code int
	body string
}

func (r *refusal) Error() string { return fmt.Sprintf("HTTP %d: %s", r.code, r.body) }

// longestRefusal is how much of a refusal is kept.
const longestRefusal = 512

// call sends a request and reads the answer.
func (c *caller) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := c.open(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // read only
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}

// drain sends a request and counts the bytes of the answer.
func (c *caller) drain(ctx context.Context, path string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // read only
	return io.Copy(io.Discard, response.Body)
}

// open sends a request and returns the answer if it is a success.
func (c *caller) open(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "ichor-bench")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close() //nolint:errcheck // read only
	text, _ := io.ReadAll(io.LimitReader(response.Body, longestRefusal))
	return nil, &refusal{response.StatusCode, string(text)}
}
