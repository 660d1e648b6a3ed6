// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// errTimedOut is the cause of a context that --timeout ended.
var errTimedOut = errors.New("timed out")

// Wait holds --wait and --timeout, the same on every verb that starts work.
type Wait struct {
	wait    bool
	given   func() bool
	timeout time.Duration
}

// AddFlags adds --wait and --timeout. What says what is waited for.
func (w *Wait) AddFlags(cmd *cobra.Command, what string, timeout time.Duration) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, fmt.Sprintf("Wait until %s, and show progress. The default on a terminal; --wait=false returns at once.", what))
	w.AddTimeout(cmd, timeout)
	w.given = func() bool { return cmd.Flags().Changed("wait") }
}

// AddTimeout adds --timeout alone, for a verb that does nothing but wait.
func (w *Wait) AddTimeout(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().DurationVar(&w.timeout, "timeout", timeout, "How long to wait. When it is over the work goes on, and the exit status is 3.")
}

// Wanted is what --wait says, else true on a terminal.
func (w *Wait) Wanted(env *cli.Env) bool {
	if w.given != nil && w.given() {
		return w.wait
	}
	return env.Terminal.Out && env.Terminal.Err
}

// Check refuses a timeout that makes no sense.
func (w *Wait) Check() error {
	if w.timeout <= 0 {
		return cli.Usagef("--timeout: %s is no time to wait", w.timeout)
	}
	return nil
}

// Follow shows work until it is done, the time is over or Ctrl-C is pressed; the latter two leave the work alone and say
// so. Again is the command to watch on with.
func (w *Wait) Follow(ctx context.Context, env *cli.Env, board Board, work Work, again string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errTimedOut)
	defer cancel()
	err := NewScreen(env).Follow(ctx, board, work)
	switch {
	case errors.Is(err, errTimedOut):
		return cli.WithCode(cli.ExitTimedOut, fmt.Errorf("timed out after %s; the work goes on, watch it with: %s", w.timeout, again))
	case errors.Is(err, cli.ErrInterrupted), errors.Is(err, context.Canceled):
		return cli.WithCode(cli.ExitInterrupted, fmt.Errorf("no longer watching; the work goes on, watch it with: %s", again))
	}
	return err
}

// Given is true when --wait was asked for by name.
func (w *Wait) Given() bool { return w.wait && w.given != nil && w.given() }
