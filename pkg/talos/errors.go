// SPDX-License-Identifier: Apache-2.0

package talos

import "fmt"

// FingerprintError is a maintenance certificate that is not the expected one. Nothing was sent.
type FingerprintError struct {
	Address   string
	Want, Got Fingerprint
}

func (e *FingerprintError) Error() string {
	return fmt.Sprintf("machine at %s presents maintenance certificate %s, expected %s; compare with the fingerprint on its console", e.Address, e.Got, e.Want)
}

// ApplyError is a configuration that was not, or perhaps not, taken.
type ApplyError struct {
	// Delivered is false when the request can't have reached the machine, true when the machine refused it, and
	// MaybeDelivered says that the answer was lost: the machine's state must be looked at.
	Delivered, MaybeDelivered bool
	Err                       error
}

func (e *ApplyError) Error() string {
	switch {
	case e.MaybeDelivered:
		return fmt.Sprintf("the answer to the configuration was lost: %v", e.Err)
	case e.Delivered:
		return fmt.Sprintf("the machine refused the configuration: %v", e.Err)
	default:
		return fmt.Sprintf("the configuration was not sent: %v", e.Err)
	}
}

func (e *ApplyError) Unwrap() error { return e.Err }
