// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CallError is a connection or a call that went wrong.
type CallError struct {
	Address netip.Addr
	// What was tried, for instance "read the stage".
	What string
	Err  error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("%s of machine at %s: %s", e.What, e.Address, describe(e.Err))
}

func (e *CallError) Unwrap() error { return e.Err }

// Cause is what went wrong in words, without what was tried and where.
func (e *CallError) Cause() string { return describe(e.Err) }

// Code is the gRPC status code of an error; Unknown for errors that never were an answer.
func Code(err error) codes.Code {
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	if errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return status.Code(err)
}

func isNotFound(err error) bool { return Code(err) == codes.NotFound }

// IsLost tells that a call got no answer from the machine: it may be rebooting, or the connection broke. What the call
// did is unknown.
func IsLost(err error) bool {
	switch Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}

// IsUnreachable tells that nothing took the connection: no host, no route, or nothing that listens.
func IsUnreachable(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// IsAlreadyBootstrapped tells that Bootstrap was refused because there is etcd data.
// Source: Talos, internal/app/machined/internal/server/v1alpha1 (AlreadyExists "etcd data directory is not empty").
func IsAlreadyBootstrapped(err error) bool { return Code(err) == codes.AlreadyExists }

// IsNotYet tells that a call is refused for now and may be repeated: Bootstrap before containerd runs or the time is set.
func IsNotYet(err error) bool { return Code(err) == codes.FailedPrecondition }

// describe says an error in words, without gRPC's frame around it.
func describe(err error) string {
	text := err.Error()
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) {
		inner := answer.GRPCStatus()
		text = strings.Replace(text, inner.Err().Error(), fmt.Sprintf("%s: %s", inner.Code(), inner.Message()), 1)
	}
	return oneLine(text)
}

// Refused tells that the machine itself answered a call with no: asking again is of no use until somebody has done
// something. A machine that is away, or whose answer was lost, refuses nothing.
func Refused(err error) bool {
	var answer interface{ GRPCStatus() *status.Status }
	return errors.As(err, &answer) && answer.GRPCStatus().Code() != codes.OK && !IsLost(err)
}
