// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"maesh.dev/ichor/test/localstack"
	"maesh.dev/ichor/test/localstack/state"
)

// lookEvery is the time between two looks at a stack that starts in the background.
const lookEvery = 200 * time.Millisecond

// upDetached starts the stack in a process of its own and returns once it is ready. What that process prints is shown
// meanwhile, and kept in logs/localstack.log.
func upDetached(ctx context.Context, out io.Writer, options localstack.Options) error {
	dir, err := state.Open(options.StateDir)
	if err != nil {
		return err
	}
	if lock, err := dir.Lock(); err != nil {
		return fmt.Errorf("%w; end it with `localstack down`, or give another --state", err)
	} else if err := lock.Release(); err != nil {
		return err
	}
	if err := os.Remove(dir.Ready()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.Create(dir.Log("localstack"))
	if err != nil {
		return fmt.Errorf("log of the stack: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor

	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	child := exec.Command(self, arguments(dir, options)...)
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	return watch(ctx, out, dir, child)
}

// arguments are those of a stack in the foreground.
func arguments(dir state.Dir, o localstack.Options) []string {
	args := []string{"up", "--state", string(dir), "--apiservers", strconv.Itoa(o.APIServers), "--controllers", strconv.Itoa(o.Controllers)}
	switch {
	case o.FleetFile != "":
		args = append(args, "--fleet", o.FleetFile)
	case o.Machines != 0:
		args = append(args, "--machines", strconv.Itoa(o.Machines))
	}
	return args
}

// watch shows what the child prints until it is ready or has ended. If ctx is done first, the child is ended.
func watch(ctx context.Context, out io.Writer, dir state.Dir, child *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	log, err := os.Open(dir.Log("localstack"))
	if err != nil {
		return fmt.Errorf("log of the stack: %w", err)
	}
	defer log.Close() //nolint:errcheck // read only
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		_, ready := os.Stat(dir.Ready())
		if _, err := io.Copy(out, log); err != nil {
			return fmt.Errorf("show the log of the stack: %w", err)
		}
		if ready == nil && slices.ContainsFunc(alive(dir), func(p state.Process) bool { return p.PID == child.Process.Pid }) {
			fmt.Fprintf(out, "\nready; `localstack down --state %s` ends it\n", dir)
			return nil
		}
		select {
		case err := <-ended:
			_, copied := io.Copy(out, log)
			return errors.Join(fmt.Errorf("the stack ended before it was ready: %w; its log is %s", err, dir.Log("localstack")), copied)
		case <-ctx.Done():
			signalled := child.Process.Signal(syscall.SIGTERM)
			<-ended
			return errors.Join(ctx.Err(), signalled)
		case <-ticker.C:
		}
	}
}

// alive are the processes of the stack; what can't be read counts as none.
func alive(dir state.Dir) []state.Process {
	processes, err := dir.Processes()
	if err != nil {
		return nil
	}
	return processes
}
