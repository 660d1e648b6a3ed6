// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	watchers = 200
	// watchClients share the watchers' streams.
	watchClients = 8
)

// fanOut lets watchers watch while the status of some machines changes, and takes the time from the first change until
// the last watcher has heard of the last one. Its calls are the watchers' events.
func fanOut(ctx context.Context, w *world, writers, readers []*caller, s *side) (timing, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bodies, err := changes(ctx, w, s)
	if err != nil {
		return timing{}, err
	}
	now, err := w.now(ctx)
	if err != nil {
		return timing{}, err
	}
	var left, ready atomic.Int64
	left.Store(watchers * watched)
	ready.Store(watchers)
	everyone, done := make(chan struct{}), make(chan time.Time, 1)
	group, inner := errgroup.WithContext(ctx)
	for n := range watchers {
		watcher := &watcher{client: readers[n%len(readers)], path: s.machines(), last: strconv.FormatInt(now, 10)}
		group.Go(func() error {
			return watcher.hear(inner, watched, func() {
				if ready.Add(-1) == 0 {
					close(everyone)
				}
			}, func() {
				if left.Add(-1) == 0 {
					done <- time.Now()
				}
			})
		})
	}
	select {
	case <-everyone:
	case <-inner.Done():
		return timing{}, fmt.Errorf("watch machines of %s: %w", s.name, group.Wait())
	}
	began := time.Now()
	if _, err := together(ctx, writers, watched, func(ctx context.Context, client *caller, i int) error {
		_, err := client.call(ctx, http.MethodPut, s.machines()+"/"+nameOf(firstWatched+i)+"/status", bodies[i])
		return err
	}); err != nil {
		return timing{}, fmt.Errorf("write status of machines of %s: %w", s.name, err)
	}
	if err := group.Wait(); err != nil {
		return timing{}, fmt.Errorf("watch machines of %s: %w", s.name, err)
	}
	return timing{slices.Repeat([]time.Duration{0}, watchers*watched), (<-done).Sub(began)}, nil
}

// changes are the bodies that change the status of the watched machines.
func changes(ctx context.Context, w *world, s *side) ([][]byte, error) {
	bodies := make([][]byte, watched)
	for i := range watched {
		r, err := w.get(ctx, s.machineKey(firstWatched+i))
		if err != nil {
			return nil, err
		}
		machine, err := r.machine()
		if err != nil {
			return nil, err
		}
		machine.Status.Conditions[1].LastTransitionTime = metav1.Now().Rfc3339Copy()
		machine.Status.Conditions[1].Message += "."
		if bodies[i], err = json.Marshal(machine); err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

// watcher hears events, one a line, and goes on where it was if the server ends the stream: servers do that to who reads
// too slowly.
type watcher struct {
	client     *caller
	path, last string
}

// hear returns when it has heard so many events.
func (w *watcher) hear(ctx context.Context, events int, ready, each func()) error {
	for events > 0 {
		response, err := w.client.open(ctx, http.MethodGet, w.path+"?watch=1&resourceVersion="+w.last, nil)
		if err != nil {
			return err
		}
		if ready != nil {
			ready()
			ready = nil
		}
		n, err := w.read(response.Body, events, each)
		_ = response.Body.Close() // read only
		if events -= n; err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

func (w *watcher) read(body io.Reader, events int, each func()) (heard int, err error) {
	lines := bufio.NewReaderSize(body, 64<<10)
	for heard < events {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return heard, err
		}
		if w.last, err = versionIn(line); err != nil {
			return heard, err
		}
		heard++
		each()
	}
	return heard, nil
}

// versionIn is the version of an event's object.
func versionIn(event []byte) (string, error) {
	const key = `"resourceVersion":"`
	i := bytes.Index(event, []byte(key))
	if i < 0 || !bytes.HasPrefix(event, []byte(`{"type":"MODIFIED"`)) {
		return "", fmt.Errorf("watch: no change of a machine: %.200s", event)
	}
	version, _, _ := bytes.Cut(event[i+len(key):], []byte{'"'})
	return string(version), nil
}
