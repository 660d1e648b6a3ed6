// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"maesh.dev/ichor/test/hollow/kubernetes/process"
)

// stopFor bounds the orderly end of a part.
const stopFor = 15 * time.Second

// Part is a program that is started again whenever it ends.
type Part struct {
	// Name is also that of its log.
	Name  string
	child *process.Child

	mu     sync.Mutex
	pid    int
	starts int
	paused bool
}

func startPart(dir, name, path string, logger *slog.Logger, args ...string) *Part {
	p := &Part{Name: name}
	p.child = process.Start(process.Spec{
		Name: name, Path: path, Args: args, LogFile: filepath.Join(dir, name+".log"), Logger: logger,
		Changed: func(pid int, _ error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.pid = pid; pid > 0 {
				p.starts++
			}
			p.paused = false
		},
	})
	return p
}

// Starts is how often it was started.
func (p *Part) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Kill ends the process as a power cut would.
func (p *Part) Kill() error { return p.signal(syscall.SIGKILL) }

// End asks the process to end in an orderly way, as a roll-out does.
func (p *Part) End() error { return p.signal(syscall.SIGTERM) }

// Pause stops the process where it is: its connections stay, and nothing answers.
func (p *Part) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets it go on. One that doesn't pause is left alone.
func (p *Part) Resume() error {
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if !paused {
		return nil
	}
	return p.signal(syscall.SIGCONT)
}

// signal reaches the process that runs now. One that is just being started again is as good as killed.
func (p *Part) signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return nil
	}
	if err := syscall.Kill(p.pid, signal); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("signal %s to %s: %w", signal, p.Name, err)
	}
	p.paused = signal == syscall.SIGSTOP
	return nil
}

func (p *Part) stop() {
	_ = p.Resume() // what pauses can't end
	ctx, cancel := context.WithTimeout(context.Background(), stopFor)
	defer cancel()
	p.child.Stop(ctx)
}
