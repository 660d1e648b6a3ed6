// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// changing is a ConfigMap that tests change, served alone as a collection that can be watched.
type changing struct {
	mu      sync.Mutex
	object  *corev1.ConfigMap
	version int
	// changed is closed at the next change.
	changed chan struct{}
	// held is closed when lists and watches are answered again; nil if they are.
	held chan struct{}
}

func newChanging(object *corev1.ConfigMap) *changing {
	return &changing{object: object, version: 1, changed: make(chan struct{})}
}

// now is the object as it is, and what is closed when it changes.
func (c *changing) now() (*corev1.ConfigMap, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.object.DeepCopy(), c.changed
}

// change changes the object and tells all who watch.
func (c *changing) change(change func(data map[string]string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.object.DeepCopy()
	change(next.Data)
	c.version++
	next.ResourceVersion = strconv.Itoa(c.version)
	c.object = next
	close(c.changed)
	c.changed = make(chan struct{})
}

// serve lists and watches.
func (c *changing) serve(w http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-req.Context().Done():
			return
		}
	}
	object, changed := c.now()
	query := req.URL.Query()
	if query.Get("watch") == "" {
		write(w, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMapList", "metadata": map[string]any{"resourceVersion": object.ResourceVersion}, "items": []any{object},
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	flush := func() {
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
	}
	switch {
	case query.Get("sendInitialEvents") == "true":
		fmt.Fprintln(w, event("ADDED", object))
		fmt.Fprintln(w, event("BOOKMARK", map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"resourceVersion": object.ResourceVersion, "annotations": map[string]any{initialEventsEnd: "true"}},
		}))
	case query.Get("resourceVersion") != object.ResourceVersion:
		fmt.Fprintln(w, event("MODIFIED", object))
	}
	for {
		flush()
		select {
		case <-req.Context().Done():
			return
		case <-changed:
			object, changed = c.now()
			fmt.Fprintln(w, event("MODIFIED", object))
		}
	}
}

// Trust changes what the kube-apiserver says of whom its aggregated servers trust, as a rotation of a CA does.
func (k *Kube) Trust(change func(data map[string]string)) { k.trusted.change(change) }

// HoldTrust lets those who follow what is trusted wait, and not those who read it once.
func (k *Kube) HoldTrust() {
	k.trusted.mu.Lock()
	defer k.trusted.mu.Unlock()
	k.trusted.held = make(chan struct{})
}

// ReleaseTrust answers those who wait.
func (k *Kube) ReleaseTrust() {
	k.trusted.mu.Lock()
	defer k.trusted.mu.Unlock()
	close(k.trusted.held)
	k.trusted.held = nil
}
