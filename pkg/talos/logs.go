// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// LogReader reads what a machine tells of itself. It needs os:reader.
type LogReader interface {
	// ServiceLog copies the log of one of Talos' services, its last lines if tail isn't negative. With follow it goes on
	// until ctx ends or the machine ends it. A service that the machine doesn't know is ErrNoSuchLog.
	ServiceLog(ctx context.Context, service string, follow bool, tail int32, to io.Writer) error
	// KernelLog copies the kernel's messages; with onlyNew those from now on.
	KernelLog(ctx context.Context, follow, onlyNew bool, to io.Writer) error
}

// ErrNoSuchLog is a log that the machine doesn't have.
var ErrNoSuchLog = errors.New("the machine has no such log")

// logIdle is how long a log that isn't followed may bring nothing.
const logIdle = 30 * time.Second

// logStream is a stream of a log's pieces.
type logStream interface {
	Recv() (*common.Data, error)
}

func (n *node) ServiceLog(ctx context.Context, service string, follow bool, tail int32, to io.Writer) error {
	err := n.copyLog(ctx, "log of "+service, follow, to, func(ctx context.Context) (logStream, error) {
		return n.machine.Logs(ctx, &machineapi.LogsRequest{
			Namespace: constants.SystemContainerdNamespace, Driver: common.ContainerDriver_CONTAINERD, Id: service, Follow: follow, TailLines: max(tail, -1),
		})
	})
	// Talos says it in words only. Source: Talos, internal/app/machined/pkg/runtime/logging/circular.go.
	if err != nil && (strings.Contains(err.Error(), "was not registered") || strings.Contains(err.Error(), "not found")) {
		return fmt.Errorf("%w: %w", ErrNoSuchLog, err)
	}
	return err
}

func (n *node) KernelLog(ctx context.Context, follow, onlyNew bool, to io.Writer) error {
	return n.copyLog(ctx, "messages of the kernel", follow, lines{to}, func(ctx context.Context) (logStream, error) {
		return n.machine.Dmesg(ctx, &machineapi.DmesgRequest{Follow: follow, Tail: onlyNew})
	})
}

// lines ends each piece as a line: a piece of the kernel's log is one message, whose end some versions of Talos leave out.
type lines struct{ to io.Writer }

// Write passes a piece on.
func (l lines) Write(piece []byte) (int, error) {
	if len(piece) == 0 || piece[len(piece)-1] == '\n' {
		return l.to.Write(piece)
	}
	n, err := l.to.Write(append(slices.Clone(piece), '\n'))
	return min(n, len(piece)), err
}

// copyLog copies a log as it comes. One that is followed may be silent for as long as it likes.
func (n *node) copyLog(ctx context.Context, what string, follow bool, to io.Writer, open func(context.Context) (logStream, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(logIdle, func() { cancel(fmt.Errorf("nothing came for %s", logIdle)) })
	defer stalled.Stop()
	if follow {
		stalled.Stop()
	}
	stream, err := open(ctx)
	for err == nil {
		var piece *common.Data
		if piece, err = stream.Recv(); err == nil {
			err = chunkError(piece)
		}
		if err == nil {
			if !follow {
				stalled.Reset(logIdle)
			}
			_, err = to.Write(piece.GetBytes())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &CallError{Address: n.channel.address, What: what, Err: err}
}
