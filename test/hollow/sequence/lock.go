// SPDX-License-Identifier: Apache-2.0

// Package sequence runs Talos' sequences: lists of phases, one sequence at a time, with the rules of who may push whom
// aside and the events that tell of it (Talos: internal/app/machined/pkg/runtime/sequencer.go and v1alpha1_controller.go).
package sequence

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Name is a sequence as Talos' events call it.
type Name string

// The sequences.
const (
	Initialize         Name = "initialize"
	Install            Name = "install"
	Boot               Name = "boot"
	Shutdown           Name = "shutdown"
	Upgrade            Name = "upgrade"
	StageUpgrade       Name = "stageUpgrade"
	MaintenanceUpgrade Name = "maintenanceUpgrade"
	Reset              Name = "reset"
	Reboot             Name = "reboot"
)

// takeOver lists, by what runs, what may push it aside without being told to.
var takeOver = map[Name][]Name{
	Initialize: {MaintenanceUpgrade, Reboot},
	Boot:       {Reboot, Reset, Upgrade},
	Reboot:     {Reboot},
	Reset:      {Reboot},
}

func canTakeOver(next, running Name) bool {
	for _, allowed := range takeOver[running] {
		if next == allowed {
			return true
		}
	}
	return running == ""
}

// takeOverTimeout is how long a sequence that is pushed aside gets to end.
const takeOverTimeout = time.Minute

// ErrLocked tells that another sequence runs and may not be pushed aside.
var ErrLocked = errors.New("locked")

// lock lets one sequence run at a time.
type lock struct {
	// slot holds one token while no sequence runs.
	slot chan struct{}
	// waiting holds one token while a sequence waits for another to end.
	waiting chan struct{}

	mu      sync.Mutex
	running Name
	cancel  context.CancelFunc
}

func newLock() *lock {
	l := &lock{slot: make(chan struct{}, 1), waiting: make(chan struct{}, 1)}
	l.slot <- struct{}{}
	return l
}

// acquire waits for the turn of a sequence and returns the context it must run under.
func (l *lock) acquire(ctx context.Context, next Name, force bool) (context.Context, error) {
	timeout := time.NewTimer(takeOverTimeout)
	defer timeout.Stop()
	select {
	case l.waiting <- struct{}{}:
	case <-timeout.C:
		return nil, errors.New("failed to acquire lock: timeout")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.waiting }()
	l.mu.Lock()
	running, cancel := l.running, l.cancel
	l.mu.Unlock()
	if !force && !canTakeOver(next, running) {
		return nil, ErrLocked
	}
	if cancel != nil {
		cancel()
	}
	select {
	case <-l.slot:
	case <-timeout.C:
		return nil, errors.New("failed to acquire lock: timeout")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	inner, stop := context.WithCancel(ctx)
	l.mu.Lock()
	l.running, l.cancel = next, stop
	l.mu.Unlock()
	return inner, nil
}

func (l *lock) release() {
	l.mu.Lock()
	l.cancel()
	l.running, l.cancel = "", nil
	l.mu.Unlock()
	l.slot <- struct{}{}
}
