// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
)

// IsRefusal tells that the machine judged the configuration itself and turned it down: it doesn't have it, and sending it
// again is of no use. A machine that is busy with another configuration, or has one already, refuses too, but says nothing
// about this one; what it has must then be looked at. Source: Talos, internal/app/machined/internal/server/v1alpha1
// (FailedPrecondition for a configuration that is being or was applied, PermissionDenied once there is one).
func IsRefusal(err error) bool {
	var outcome *ApplyError
	if !errors.As(err, &outcome) || !outcome.Delivered || outcome.MaybeDelivered {
		return false
	}
	text := outcome.Err.Error()
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.PermissionDenied, codes.Aborted, codes.AlreadyExists} {
		if strings.HasPrefix(text, code.String()+":") {
			return false
		}
	}
	return true
}

// IsNotSent tells that it is certain that no configuration reached the machine.
func IsNotSent(err error) bool {
	var outcome *ApplyError
	return errors.As(err, &outcome) && !outcome.Delivered && !outcome.MaybeDelivered
}
