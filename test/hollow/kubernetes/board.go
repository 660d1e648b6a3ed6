// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"reflect"
	"slices"
	"sync"

	"maesh.dev/ichor/test/hollow/workload"
)

// maxPending bounds the pictures that wait for a slow reader; then the oldest are dropped, for a later one replaces them.
const maxPending = 256

// board holds the status of a workload and hands each picture of it to notify, in order, from one goroutine. Pictures
// aren't merged: who waits for a kubelet to go down and come back must see both.
type board struct {
	notify func(workload.Status)

	mu      sync.Mutex
	status  workload.Status
	pending []workload.Status
	closed  bool

	changed chan struct{}
	done    chan struct{}
}

func newBoard(notify func(workload.Status)) *board {
	b := &board{notify: notify, changed: make(chan struct{}, 1), done: make(chan struct{})}

	go b.run()

	return b
}

// update changes the status and queues a picture of it if it differs.
func (b *board) update(change func(*workload.Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()

	before := picture(b.status)
	change(&b.status)

	if b.closed || reflect.DeepEqual(before, b.status) {
		return
	}

	b.pending = append(b.pending, picture(b.status))
	if len(b.pending) > maxPending {
		b.pending = slices.Delete(b.pending, 0, len(b.pending)-maxPending)
	}

	b.wake()
}

// service replaces one service; services stay in the order of their first appearance.
func (b *board) service(service workload.Service) {
	b.update(func(status *workload.Status) {
		for i := range status.Services {
			if status.Services[i].ID == service.ID {
				status.Services[i] = service

				return
			}
		}

		status.Services = append(status.Services, service)
	})
}

// close forbids further pictures and waits until notify has returned for the last time.
func (b *board) close() {
	b.mu.Lock()
	b.closed = true
	b.pending = nil
	b.wake()
	b.mu.Unlock()

	<-b.done
}

func (b *board) wake() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *board) run() {
	defer close(b.done)

	for range b.changed {
		for {
			next, closed := b.take()
			if closed {
				return
			}

			if next == nil {
				break
			}

			b.notify(*next)
		}
	}
}

func (b *board) take() (next *workload.Status, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if len(b.pending) == 0 {
		return nil, b.closed
	}

	first := b.pending[0]
	b.pending = b.pending[1:]

	return &first, b.closed
}

// picture copies a status so that later changes don't show through.
func picture(status workload.Status) workload.Status {
	status.Services = slices.Clone(status.Services)
	status.StaticPods = slices.Clone(status.StaticPods)

	return status
}
