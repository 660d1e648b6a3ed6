// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// DeprecatedAPI is an API version whose end is announced, and that a kube-apiserver was asked for since it started.
type DeprecatedAPI struct {
	Group, Version, Resource string
	// RemovedRelease is the version of Kubernetes that won't serve it, such as "1.38"; empty if none is decided on.
	RemovedRelease string
}

const (
	// metricsTimeout bounds the reading of one kube-apiserver's metrics.
	metricsTimeout = 15 * time.Second
	// maxMetricsBytes and maxMetricsLine bound what is read: a large cluster's kube-apiserver has some ten megabytes.
	maxMetricsBytes = 128 << 20
	maxMetricsLine  = 1 << 20
	// maxDeprecated is how many API versions are taken; Kubernetes has some tens.
	maxDeprecated = 1024
	// deprecatedMetric counts by group, version, resource, subresource and removed_release.
	// Source: Kubernetes, staging/src/k8s.io/apiserver/pkg/endpoints/metrics/metrics.go.
	deprecatedMetric = "apiserver_requested_deprecated_apis"
)

// APIServers asks each kube-apiserver of a cluster by itself, not whichever answers at the cluster's endpoint.
type APIServers struct{ Config *rest.Config }

// DeprecatedAPIs reads from the metrics of the kube-apiserver at an address, host:port, what it was asked for.
func (a APIServers) DeprecatedAPIs(ctx context.Context, address string) ([]DeprecatedAPI, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(a.Config)
	if err != nil {
		return nil, fmt.Errorf("reach kube-apiserver at %s: %w", address, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("reach kube-apiserver at %s: %w", address, err)
	}
	request.Header.Set("Accept", "text/plain")
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of kube-apiserver at %s: %w", address, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read from only
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the metrics of kube-apiserver at %s: it answers %s", address, answer.Status)
	}
	found, err := parseDeprecated(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of kube-apiserver at %s: %w", address, err)
	}
	return found, nil
}

var label = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// parseDeprecated finds the one metric in the text of all. A text that isn't a kube-apiserver's, or ends early, says nothing.
func parseDeprecated(text io.Reader) ([]DeprecatedAPI, error) {
	limited := &io.LimitedReader{R: text, N: maxMetricsBytes}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxMetricsLine)
	seen, theirs := map[DeprecatedAPI]bool{}, false
	var found []DeprecatedAPI
	for lines.Scan() {
		line := lines.Text()
		theirs = theirs || strings.HasPrefix(line, "apiserver_")
		if !strings.HasPrefix(line, deprecatedMetric+"{") {
			continue
		}
		api := DeprecatedAPI{}
		for _, pair := range label.FindAllStringSubmatch(line, -1) {
			switch pair[1] {
			case "group":
				api.Group = pair[2]
			case "version":
				api.Version = pair[2]
			case "resource":
				api.Resource = pair[2]
			case "removed_release":
				api.RemovedRelease = pair[2]
			}
		}
		if seen[api] || strings.HasSuffix(line, " 0") {
			continue
		}
		if len(found) == maxDeprecated {
			return nil, fmt.Errorf("it has more than %d API versions", maxDeprecated)
		}
		seen[api] = true
		found = append(found, api)
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case limited.N == 0:
		return nil, fmt.Errorf("they are larger than %d MiB", maxMetricsBytes>>20)
	case !theirs:
		return nil, errors.New("they aren't those of a kube-apiserver")
	}
	return found, nil
}
