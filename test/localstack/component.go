// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"maesh.dev/ichor/test/hollow/kubernetes/process"
)

const (
	// checkEvery is the time between two looks whether a component is ready.
	checkEvery = 100 * time.Millisecond
	// endsUntilBroken is after how many ends a component that was never ready counts as broken.
	endsUntilBroken = 3
	// stopComponent bounds the orderly end of a component; after that it is killed.
	stopComponent = 20 * time.Second
	// logTail is how much of a log a failure shows.
	logTail = 2048
)

// Component is a program of the stack that is started again when it ends.
type Component struct {
	// Name is also the name of the log file and of the pid file.
	Name  string
	stack *Stack
	child *process.Child

	mu     sync.Mutex
	pid    int
	starts int
	reason error
}

// start runs a program of the stack's folder of programs.
func (s *Stack) start(name, program string, args ...string) *Component {
	c := &Component{Name: name, stack: s}
	c.child = process.Start(process.Spec{
		Name: name, Path: filepath.Join(s.options.BinDir, program), Args: args,
		LogFile: s.dir.Log(name), Logger: s.logger, Changed: c.changed,
	})
	s.mu.Lock()
	s.components = append(s.components, c)
	s.mu.Unlock()
	return c
}

func (c *Component) changed(pid int, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid, c.reason = pid, reason
	var err error
	if pid > 0 {
		c.starts++
		err = c.stack.dir.SetProcess(c.Name, pid)
	} else {
		err = c.stack.dir.ClearProcess(c.Name)
	}
	// A process can end before it is recorded.
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrProcessDone) {
		c.stack.logger.Warn("record process", "component", c.Name, "error", err)
	}
}

// PID of the process that runs now, 0 if none does.
func (c *Component) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Starts is how often the program was started.
func (c *Component) Starts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// Kill ends the process that runs now as a power cut would; it is started again after a moment.
func (c *Component) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == 0 {
		return fmt.Errorf("kill %s: it doesn't run", c.Name)
	}
	if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", c.Name, err)
	}
	return nil
}

// wait waits until the component is ready, or is broken: it ended several times, or ctx is done.
func (c *Component) wait(ctx context.Context, check func(ctx context.Context) error) error {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		c.mu.Lock()
		broken := c.pid == 0 && c.starts >= endsUntilBroken
		reason := c.reason
		c.mu.Unlock()
		if broken {
			return fmt.Errorf("%s ends again and again: %w; the end of %s:\n%s", c.Name, reason, c.stack.dir.Log(c.Name), c.tail())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s is ready: %w: %w; the end of %s:\n%s", c.Name, ctx.Err(), err, c.stack.dir.Log(c.Name), c.tail())
		case <-ticker.C:
		}
	}
}

// tail is the end of the log.
func (c *Component) tail() string {
	file, err := os.Open(c.stack.dir.Log(c.Name))
	if err != nil {
		return err.Error()
	}
	defer file.Close() //nolint:errcheck // read only
	if info, err := file.Stat(); err == nil && info.Size() > logTail {
		if _, err := file.Seek(-logTail, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	data, err := io.ReadAll(io.LimitReader(file, logTail))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

// stop ends the component in an orderly way, or kills it after a while.
func (c *Component) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopComponent)
	defer cancel()
	c.child.Stop(ctx)
}
