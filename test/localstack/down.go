// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"maesh.dev/ichor/test/localstack/state"
)

const (
	// downPatience is how long a stack may take to end in an orderly way, killPatience how long after a kill.
	downPatience = 90 * time.Second
	killPatience = 10 * time.Second
	downLook     = 100 * time.Millisecond
)

// Down ends the stack that runs in a folder, and what an earlier one that was killed may have left. It returns whether
// anything ran.
func Down(ctx context.Context, dir state.Dir) (ran bool, err error) {
	processes, err := dir.Processes()
	if err != nil {
		return false, err
	}
	for _, p := range processes {
		if p.Name != SupervisorName {
			continue
		}
		if err := end(ctx, p, syscall.SIGTERM, downPatience); err == nil {
			return true, nil
		}
		if err := end(ctx, p, syscall.SIGKILL, killPatience); err != nil {
			return true, err
		}
	}
	// Children end with the process that started them; this is for kernels that don't know how.
	var faults []error
	for _, p := range processes {
		if p.Name != SupervisorName {
			faults = append(faults, end(ctx, p, syscall.SIGKILL, killPatience))
		}
		faults = append(faults, dir.ClearProcess(p.Name))
	}
	return len(processes) > 0, errors.Join(faults...)
}

// end signals exactly one process and waits until it is gone.
func end(ctx context.Context, p state.Process, signal syscall.Signal, patience time.Duration) error {
	if err := p.Signal(signal); errors.Is(err, os.ErrProcessDone) {
		return nil
	} else if err != nil {
		return fmt.Errorf("end %s (pid %d): %w", p.Name, p.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(downLook)
	defer ticker.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("end %s (pid %d): it still runs after signal %s: %w", p.Name, p.PID, signal, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}
