// SPDX-License-Identifier: Apache-2.0

package talostest

import (
	"context"
	"io"
	"strings"

	"maesh.dev/ichor/pkg/talos"
)

var _ talos.LogReader = &connection{}

// ServiceLog copies what Logs has of a service.
func (c *connection) ServiceLog(ctx context.Context, service string, follow bool, tail int32, to io.Writer) error {
	return c.log(ctx, service, follow, int(tail), to)
}

// KernelLog copies what Logs has under the empty name.
func (c *connection) KernelLog(ctx context.Context, follow, onlyNew bool, to io.Writer) error {
	tail := -1
	if onlyNew {
		tail = 0
	}
	return c.log(ctx, "", follow, tail, to)
}

func (c *connection) log(ctx context.Context, name string, follow bool, tail int, to io.Writer) error {
	var text string
	err := c.do(func(s *State) error {
		var known bool
		if text, known = s.Logs[name]; !known {
			return talos.ErrNoSuchLog
		}
		return nil
	})
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if tail >= 0 && tail < len(lines) {
		lines = lines[len(lines)-tail:]
	}
	for _, line := range lines {
		if _, err := io.WriteString(to, line); err != nil {
			return err
		}
	}
	if follow {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}
