// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// kernelLog is the kernel's ring buffer as Dmesg shows it, lost at reboot.
type kernelLog struct {
	started time.Time
	mu      sync.Mutex
	lines   []string
	more    chan struct{}
}

// maxKernelLines bounds what a node remembers; nothing here writes more in one boot.
const maxKernelLines = 4096

func newKernelLog(started time.Time) *kernelLog {
	return &kernelLog{started: started, more: make(chan struct{})}
}

func (k *kernelLog) printf(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lines) == maxKernelLines {
		return
	}
	line := fmt.Sprintf("user: warning: [%s]: %s", time.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
	k.lines = append(k.lines, line)
	close(k.more)
	k.more = make(chan struct{})
}

// read sends the lines from the start (or from now, with tail) and, if told to follow, those to come.
func (k *kernelLog) read(ctx context.Context, follow, tail bool, send func(line string) error) error {
	k.mu.Lock()
	position := 0
	if tail {
		position = len(k.lines)
	}
	k.mu.Unlock()
	for {
		k.mu.Lock()
		lines, more := k.lines[position:], k.more
		position = len(k.lines)
		k.mu.Unlock()
		for _, line := range lines {
			if err := send(line); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
	}
}
