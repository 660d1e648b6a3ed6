// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// maxTried is how many of a machine's addresses are tried.
const maxTried = 4

// Reach connects to the very machine, at the first of its addresses at which it answers: who it is is read on the connection
// that is returned.
func Reach(ctx context.Context, dialer Dialer, credentials Credentials, m *v1alpha1.TalosMachine) (ConfiguredNode, error) {
	var errs []error
	for _, address := range AddressesOf(m) {
		node, err := dialer.DialConfigured(ctx, address, credentials)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		who, err := node.Identity(ctx)
		if err == nil && identity.SameMachine(identity.Identity(m.Spec.Identity), identity.Identity(who)) {
			return node, nil
		}
		if err == nil {
			err = fmt.Errorf("another machine answers at %s (UUID %s)", address, who.UUID)
		}
		errs = append(errs, err, node.Close())
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no address of it is known"))
	}
	return nil, errors.Join(errs...)
}

// AddressesOf are those to reach a machine at: where it was reached last, and where it is declared to be.
func AddressesOf(m *v1alpha1.TalosMachine) []netip.Addr {
	var out []netip.Addr
	for _, text := range append(slices.Clone(m.Status.Addresses), m.Spec.Address) {
		if address, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, address) && len(out) < maxTried {
			out = append(out, address)
		}
	}
	return out
}
