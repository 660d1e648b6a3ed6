// SPDX-License-Identifier: Apache-2.0

// Package operate makes operations and follows them to their end: what "ichor operation" and the verbs that start an
// operation have in common.
package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// Timeout is how long an operation is waited for: a machine takes minutes, and they go one by one.
const Timeout = 24 * time.Hour

// EndsHelp says how watching an operation ends.
const EndsHelp = "The exit status is 0 when the operation has Succeeded, 1 when it has Failed, 2 when it was Cancelled, 3 when the time is over while it goes on, " +
	"and 5 when a check of its plan kept it from beginning. " +
	"An operation that is Paused waits for a person: on a terminal watching goes on, and says what to do; elsewhere it ends with 1 and the reason. " +
	"Ctrl-C ends the watching, not the work."

// WatchCommand is the command to watch an operation with.
func WatchCommand(env *cli.Env, name string) string { return env.Name + " operation watch " + name }

// Follow shows an operation until it has ended, and returns it as it is then. The error says whether it is as its maker
// wanted it.
func Follow(ctx context.Context, env *cli.Env, client versioned.Interface, wait *progress.Wait, name string) (*v1alpha1.TalosOperation, error) {
	titles := lookup.Titles(ctx, client)
	board := progress.NewOperation(name, titles, !env.Terminal.Err, env.Name)
	if err := wait.Follow(ctx, env, board, progress.WatchOperation(client, board), WatchCommand(env, name)); err != nil {
		return board.Latest(), err
	}
	return board.Latest(), Verdict(board.Latest(), titles, env.Name)
}

// Verdict is the exit status of an operation that is over or Paused, with the reason.
func Verdict(operation *v1alpha1.TalosOperation, titles screen.Titles, program string) error {
	message := titles.In(operation.Status.Message, operation)
	says := func(text string) error {
		if message != "" {
			text += ": " + message
		}
		return errors.New(text)
	}
	name := "operation " + operation.Name
	switch operation.Status.Phase {
	case v1alpha1.OperationSucceeded:
		return nil
	case v1alpha1.OperationCancelled:
		return cli.WithCode(cli.ExitUsage, says(name+" was cancelled"))
	case v1alpha1.OperationFailed:
		code := cli.ExitFailed
		if overview.FailedChecks(operation) {
			code = cli.ExitBlocked
		}
		return cli.WithCode(code, says(name+" failed"))
	default:
		return cli.WithCode(cli.ExitFailed, fmt.Errorf("%w; `%s operation show %s` shows what to do", says(name+" is paused"), program, operation.Name))
	}
}

// Tell says in a line what came of an operation that succeeded.
func Tell(env *cli.Env, operation *v1alpha1.TalosOperation) {
	text := fmt.Sprintf("operation %s succeeded: %s", operation.Name, operation.Status.Message)
	if status := &operation.Status; status.StartedAt != nil && status.FinishedAt != nil {
		text += ", took " + screen.Age(status.FinishedAt.Time, status.StartedAt.Time)
	}
	env.Infof("%s", text)
}
