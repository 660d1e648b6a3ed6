// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Exit statuses. The help topic "exit-status" lists them for people.
const (
	ExitDone        = 0   // done, or there was nothing to do
	ExitFailed      = 1   // the work failed
	ExitUsage       = 2   // cancelled, consent refused, or wrong usage
	ExitTimedOut    = 3   // the wait ended, the work goes on
	ExitForbidden   = 4   // not signed in, or forbidden
	ExitBlocked     = 5   // a check before the work said no
	ExitInterrupted = 130 // Ctrl-C
)

// ErrInterrupted is the cause of a context that Ctrl-C ended.
var ErrInterrupted = errors.New("interrupted")

// ErrStopped ends a program that only printed until Ctrl-C: there is nothing to say about it.
var ErrStopped = WithCode(ExitInterrupted, errors.New("stopped"))

// ErrDiffers ends a command that has shown a difference, as diff(1) ends: there is nothing to say about it.
var ErrDiffers = WithCode(ExitFailed, errors.New("there is a difference"))

// BesidesDiffers gives an error of a command that ends with 1 for a difference an exit status above it.
func BesidesDiffers(err error) error {
	if err == nil || errors.Is(err, ErrDiffers) || Code(err) != ExitFailed {
		return err
	}
	return WithCode(ExitUsage, err)
}

// exitError is an error that knows its exit status.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// WithCode gives an error an exit status.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: code, err: err}
}

// Usagef is an error about how the command was called.
func Usagef(format string, args ...any) error {
	return WithCode(ExitUsage, fmt.Errorf(format, args...))
}

// Cancelled says that a person said no, and that nothing was done.
func Cancelled() error {
	return WithCode(ExitUsage, errors.New("cancelled; nothing was changed"))
}

// Code is the exit status that an error ends the program with. Nil is 0.
func Code(err error) int {
	if err == nil {
		return ExitDone
	}
	var coded *exitError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return ExitInterrupted
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return ExitForbidden
	default:
		return ExitFailed
	}
}
