// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// errandWait is how long a look waits for an errand to end before it goes on to other things.
const errandWait = 2 * time.Second

// errandKey is a step of a machine in an operation.
type errandKey struct {
	name          string
	uid           types.UID
	machine, step string
}

// errand is one thing that takes minutes, and that goes on while the operation is looked at.
type errand struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	said string
	came outcome
	err  error
}

// say keeps what is told of its progress.
func (e *errand) say(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = text
}

// errands are those that run in this process. They are no part of the journal: another process finds out by itself how far a
// machine is. What a machine was told goes on there when the process ends.
type errands struct {
	mu      sync.Mutex
	running map[errandKey]*errand
	stopped bool
	group   sync.WaitGroup
}

// do begins an errand, unless one of that key runs, waits a while for its end, and gives what came of it, or what it told
// last. An outcome is given once. ctx bounds the waiting only; ended is called when the errand is over.
func (e *errands) do(ctx context.Context, key errandKey, work func(ctx context.Context, say func(string)) (outcome, error), ended func()) (outcome, error) {
	one := e.begin(key, work, ended)
	if one == nil {
		return waiting("the controller is ending")
	}
	timer := time.NewTimer(errandWait)
	defer timer.Stop()
	select {
	case <-one.ended:
		e.mu.Lock()
		delete(e.running, key)
		e.mu.Unlock()
		return one.came, one.err
	case <-timer.C:
	case <-ctx.Done():
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return outcome{message: one.said}, nil
}

func (e *errands) begin(key errandKey, work func(ctx context.Context, say func(string)) (outcome, error), ended func()) *errand {
	e.mu.Lock()
	defer e.mu.Unlock()
	if one := e.running[key]; one != nil || e.stopped {
		return one
	}
	ctx, cancel := context.WithCancel(context.Background())
	one := &errand{cancel: cancel, ended: make(chan struct{}), said: "is on its way"}
	if e.running == nil {
		e.running = map[errandKey]*errand{}
	}
	e.running[key] = one
	e.group.Go(func() {
		defer cancel()
		one.came, one.err = work(ctx, one.say)
		close(one.ended)
		ended()
	})
	return one
}

// runs tells whether an errand runs, or has an outcome that nobody took yet.
func (e *errands) runs(key errandKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[key] != nil
}

// drop ends the errands of an operation that has ended, or is gone.
func (e *errands) drop(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, one := range e.running {
		if key.name == name {
			one.cancel()
			delete(e.running, key)
		}
	}
}

// stop ends all errands, and returns when they have.
func (e *errands) stop() {
	e.mu.Lock()
	e.stopped = true
	for _, one := range e.running {
		one.cancel()
	}
	e.mu.Unlock()
	e.group.Wait()
}

// apart is a visit that an errand may keep: it shares nothing that the look changes. It has no journal.
func (v *visit) apart() *visit {
	return &visit{run: &run{Controller: v.Controller, cluster: v.cluster}, m: v.m}
}

// errand does a part of the visit's step that takes minutes.
func (v *visit) errand(ctx context.Context, work func(v *visit, ctx context.Context, say func(string)) (outcome, error)) (outcome, error) {
	apart, name := v.apart(), v.op.Name
	return v.errands.do(ctx, v.errandKey(), func(ctx context.Context, say func(string)) (outcome, error) {
		return work(apart, ctx, say)
	}, func() { v.queue.Add(name) })
}

// onErrand tells whether an errand of the visit's step runs in this process.
func (v *visit) onErrand() bool { return v.errands.runs(v.errandKey()) }

func (v *visit) errandKey() errandKey {
	return errandKey{name: v.op.Name, uid: v.op.UID, machine: v.m.Name, step: v.record.Step}
}
