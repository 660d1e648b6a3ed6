// SPDX-License-Identifier: Apache-2.0

// Package process keeps one child process of a hollow node alive: it starts it, sends its output to a log file, starts
// it again with a growing pause when it ends, and ends it in an orderly way or as a power cut would. A child never
// outlives the process that started it (on Linux). It knows nothing of what the child does.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// firstPause and longestPause bound the time between two starts; steadyAfter is the run time after which a child
	// counts as healthy and the pause starts small again. Talos restarts etcd forever, pausing 5 s.
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
	steadyAfter  = 30 * time.Second

	// maxLogBytes is the size at which a log file is set aside (once, as name.1) when the child starts.
	maxLogBytes = 64 << 20
)

// Spec describes a child.
type Spec struct {
	// Name appears in log lines.
	Name string
	// Path and Args are the executable and its arguments without the executable's name.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// LogFile takes standard output and standard error; it is opened for appending.
	LogFile string
	// Logger gets starts and ends of the child.
	Logger *slog.Logger
	// Changed, if set, is called without locks whenever the child started (pid > 0) or ended (pid 0, with the reason).
	Changed func(pid int, reason error)
}

// Child is a supervised process.
type Child struct {
	spec Spec

	mu      sync.Mutex
	running *os.Process
	stopped bool

	stop chan struct{}
	done chan struct{}
}

// Start begins to supervise a child; it returns at once.
func Start(spec Spec) *Child {
	if spec.Changed == nil {
		spec.Changed = func(int, error) {}
	}

	c := &Child{spec: spec, stop: make(chan struct{}), done: make(chan struct{})}

	go c.supervise()

	return c
}

// Done is closed when the child has ended for good, after Stop or Kill.
func (c *Child) Done() <-chan struct{} { return c.done }

// Stop asks the child to end, waits until it did or ctx is done, then kills what is left. It returns when the child is
// gone.
func (c *Child) Stop(ctx context.Context) {
	c.signal(syscall.SIGTERM)

	select {
	case <-c.done:
	case <-ctx.Done():
		c.Kill()
	}
}

// Kill ends the child at once and waits until it is gone.
func (c *Child) Kill() {
	c.signal(syscall.SIGKILL)
	<-c.done
}

// signal forbids further starts and signals the process that runs now, if any.
func (c *Child) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.stopped {
		c.stopped = true
		close(c.stop)
	}

	if c.running == nil {
		return
	}

	// A process that has just ended is no fault: supervise notices it.
	if err := c.running.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.spec.Logger.Warn("signal child", "child", c.spec.Name, "signal", sig.String(), "error", err)
	}
}

func (c *Child) supervise() {
	defer close(c.done)

	// The kernel sends the parent-death signal when the *thread* that started the child ends, so this goroutine keeps
	// its thread for as long as the child may run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	pause := firstPause

	for {
		started := time.Now()
		reason := c.runOnce()

		c.spec.Changed(0, reason)

		if time.Since(started) > steadyAfter {
			pause = firstPause
		}

		timer := time.NewTimer(pause)

		select {
		case <-c.stop:
			timer.Stop()
			c.spec.Logger.Info("child ended", "child", c.spec.Name)

			return
		case <-timer.C:
		}

		c.spec.Logger.Warn("child ended, starting it again", "child", c.spec.Name, "reason", reason, "paused", pause)

		pause = min(2*pause, longestPause)
	}
}

// runOnce starts the child and waits for its end. It always returns a reason.
func (c *Child) runOnce() error {
	output, err := openLog(c.spec.LogFile)
	if err != nil {
		return err
	}

	defer output.Close() //nolint:errcheck // the child has its own descriptor

	cmd := exec.Command(c.spec.Path, c.spec.Args...)
	cmd.Env = append(inherited(), c.spec.Env...)
	cmd.Stdout = output
	cmd.Stderr = output
	cmd.SysProcAttr = attributes()

	if err = c.begin(cmd); err != nil {
		return err
	}

	pid := cmd.Process.Pid

	c.spec.Logger.Info("child started", "child", c.spec.Name, "pid", pid)
	c.spec.Changed(pid, nil)

	err = cmd.Wait()

	c.mu.Lock()
	c.running = nil
	c.mu.Unlock()

	if err == nil {
		err = errors.New("exit status 0")
	}

	return fmt.Errorf("%s (pid %d): %w", c.spec.Name, pid, err)
}

// inherited is the environment of this process without what etcd would take for flags.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "ETCD_") })
}

// begin starts cmd unless the child was stopped; both are decided under one lock so that no start can slip past a stop.
func (c *Child) begin(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.stopped {
		return fmt.Errorf("%s: stopped before it started", c.spec.Name)
	}

	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.spec.Name, err)
	}

	c.running = cmd.Process

	return nil
}

// openLog opens a log file for appending; a file that has grown too large is set aside first.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of log file: %w", err)
	}

	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		if err = os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("set aside log file: %w", err)
		}
	}

	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}

	return file, nil
}
