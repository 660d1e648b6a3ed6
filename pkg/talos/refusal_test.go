// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"errors"
	"net"
	"testing"
)

func TestWhatAFailedApplySaysAboutTheMachine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err              error
		refusal, notSent bool
	}{
		"a faulty configuration":           {err: &ApplyError{Delivered: true, Err: errors.New("InvalidArgument: no disk")}, refusal: true},
		"a faulty one, said by Talos 1.12": {err: &ApplyError{Delivered: true, Err: errors.New("Unknown: no disk")}, refusal: true},
		"one was taken already":            {err: &ApplyError{Delivered: true, Err: errors.New("FailedPrecondition: configuration was already applied")}},
		"it is configured by now":          {err: &ApplyError{Delivered: true, Err: errors.New("PermissionDenied: not authorized")}},
		"the answer was lost":              {err: &ApplyError{Delivered: true, MaybeDelivered: true, Err: errors.New("Unavailable: eof")}},
		"the connection broke before":      {err: &ApplyError{Err: errors.New("Unavailable: eof")}, notSent: true},
		"something else":                   {err: errors.New("x")},
		"nothing":                          {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := IsRefusal(tc.err); got != tc.refusal {
				t.Errorf("IsRefusal: want %v, got %v", tc.refusal, got)
			}
			if got := IsNotSent(tc.err); got != tc.notSent {
				t.Errorf("IsNotSent: want %v, got %v", tc.notSent, got)
			}
		})
	}
}

func TestNothingListensIsToldFromARefusal(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing listens":       {&CallError{Err: refused}, true},
		"the connection breaks": {&CallError{Err: &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}}, false},
		"a foreign certificate": {&CallError{Err: errors.New("certificate signed by unknown authority")}, false},
		"no error":              {nil, false},
	} {
		if got := IsUnreachable(tc.err); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
