// SPDX-License-Identifier: Apache-2.0

package killer

import (
	"net/http"
	"net/http/httptrace"
)

// Transport kills at the writes that go through a connection to a Kubernetes API.
func (k *Killer) Transport(next http.RoundTripper) http.RoundTripper {
	return &transport{killer: k, next: next}
}

type transport struct {
	killer *Killer
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w, writes := describe(r)
	if !writes {
		return t.next.RoundTrip(r)
	}
	if t.killer.options.Swap {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				t.killer.At(Unanswered, w)
			}
		}}))
	}
	response, err := t.next.RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusMultipleChoices && !t.killer.options.Swap {
		t.killer.At(Answered, w)
	}
	return response, err
}
