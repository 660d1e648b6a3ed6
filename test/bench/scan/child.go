// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// patience bounds a measured process.
const patience = 5 * time.Minute

// usage is what a process took as a whole.
type usage struct {
	began time.Time
	wall  time.Duration
	// cpu is the time on all processors, the kernel's part included.
	cpu time.Duration
}

// measure runs a command to its end.
func measure(cmd *exec.Cmd) (usage, error) {
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return usage{}, err
	}
	return usage{began: began, wall: time.Since(began), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}

// child runs a stage in a process of its own; attributes may put it into namespaces.
func child[Result any](ctx context.Context, name string, task any, attributes *syscall.SysProcAttr) (Result, usage, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var result Result
	self, err := os.Executable()
	if err != nil {
		return result, usage{}, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return result, usage{}, err
	}
	cmd := exec.CommandContext(ctx, self, name)
	cmd.SysProcAttr = attributes
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, os.Stderr
	took, err := measure(cmd)
	if err != nil {
		return result, usage{}, fmt.Errorf("stage %s: %w", name, err)
	}
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return result, usage{}, fmt.Errorf("stage %s: its result: %w", name, err)
	}
	return result, took, nil
}

// peakMemory is the most memory that this process had at a time, in MiB. (The kernel's account of an ended process isn't
// that: it begins with the parent's.)
func peakMemory() (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the peak memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024, nil
		}
	}
	return 0, errors.New("read the peak memory: /proc/self/status has no VmHWM")
}
