// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"maesh.dev/ichor/test/hollow/kubernetes/process"
)

const (
	// lookEvery is the time between two looks in a wait.
	lookEvery = 100 * time.Millisecond
	// startWithin bounds how long a server may take to be ready.
	startWithin = 2 * time.Minute
	// stopWithin bounds the orderly end of a server.
	stopWithin = 30 * time.Second
)

// program is a server in a process of its own. One that ended on its own spoils the measurement.
type program struct {
	name, log string
	// url is where it serves.
	url   string
	child *process.Child

	mu     sync.Mutex
	pid    int
	ended  error
	starts int
}

func startProgram(dir, name, path string, args ...string) *program {
	p := &program{name: name, log: filepath.Join(dir, name+".log")}
	p.child = process.Start(process.Spec{
		Name: name, Path: path, Args: args, LogFile: p.log, Logger: slog.New(slog.DiscardHandler), Changed: p.changed,
	})
	return p
}

func (p *program) changed(pid int, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
	if pid > 0 {
		p.starts++
	} else {
		p.ended = reason
	}
}

// running returns the process, or why there is none.
func (p *program) running() (pid int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil || p.starts > 1 {
		return 0, fmt.Errorf("%s ended: %w; its log is %s", p.name, p.ended, p.log)
	}
	return p.pid, nil
}

// await waits until the program is ready.
func (p *program) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	return until(ctx, p.name+" is ready", func(ctx context.Context) error {
		if _, err := p.running(); err != nil {
			return errors.Join(errStop, err)
		}
		return ready(ctx)
	})
}

func (p *program) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	p.child.Stop(ctx)
}

// errStop ends a wait.
var errStop = errors.New("no use in waiting")

// until waits until there is no error, or one that is errStop.
func until(ctx context.Context, what string, reached func(context.Context) error) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		err := reached(ctx)
		if err == nil || errors.Is(err, errStop) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// residentMemory of a process, in MiB.
func (p *program) residentMemory() (float64, error) {
	pid, err := p.running()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return parseResident(string(text))
}

func parseResident(status string) (float64, error) {
	for line := range strings.Lines(status) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("resident memory: %q: %w", line, err)
			}
			return kib / 1024, nil
		}
	}
	return 0, errors.New("resident memory: /proc tells no VmRSS")
}
