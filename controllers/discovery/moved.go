// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// maxLooks is how often it is looked anew where a machine is, because its object changed meanwhile.
const maxLooks = 4

// station is what was found at the address that a machine's object has, when the machine was met at another one: it has
// moved, or it has two addresses (a virtual one, a second network card, a proxy before it), or two machines claim to be it.
// Only who looks can tell; whatever a machine says of its addresses, another one can say too.
type station struct {
	address string
	// fingerprint is the certificate of the same machine in maintenance mode there; empty if it isn't there.
	fingerprint talos.Fingerprint
}

// unlookedError says that it must be looked at a machine's address before what was seen elsewhere can be written.
type unlookedError struct{ machine *v1alpha1.TalosMachine }

func (e *unlookedError) Error() string {
	return "it isn't known whether the machine is still where it was"
}

// whereabouts is what a sighting means for where a machine is.
type whereabouts int

const (
	// movedHere: the machine is at the address where it was seen, and no longer where it was.
	movedHere whereabouts = iota
	// alsoHere: it is where it was, and answers here too.
	alsoHere
	// claimedHere: it is where it was; what answers here presents another certificate.
	claimedHere
)

// whereIs judges a sighting of a machine by what is at the address that its object has.
func whereIs(m *v1alpha1.TalosMachine, seen sighting, looked station) (whereabouts, error) {
	known := dialled(m)
	switch {
	case known == "" || known == seen.address.String():
		return movedHere, nil
	case looked.address != known:
		return 0, &unlookedError{m}
	case looked.fingerprint == "":
		return movedHere, nil
	case looked.fingerprint == seen.fingerprint:
		return alsoHere, nil
	default:
		return claimedHere, nil
	}
}

// dialled is the address at which a machine is dialled; empty if none is known.
func dialled(m *v1alpha1.TalosMachine) string {
	if len(m.Status.Addresses) == 0 {
		return ""
	}
	return m.Status.Addresses[0]
}

// place writes a sighting down, and looks before at the address that the machine had if that is another one.
func (c *Controller) place(ctx context.Context, cluster *v1alpha1.TalosCluster, seen sighting) (string, error) {
	var looked station
	for range maxLooks {
		name, err := c.record(ctx, cluster, seen, looked)
		var unlooked *unlookedError
		if !errors.As(err, &unlooked) {
			return name, err
		}
		if looked, err = c.lookAt(ctx, unlooked.machine); err != nil {
			return "", err
		}
	}
	return "", &refusedError{fmt.Errorf("the machine seen here (%s) changes its address all the time", describe(identity.Identity(seen.facts.Identity)))}
}

// lookAt finds out whether a machine is in maintenance mode at the address that its object has. The certificate that it
// had is proof enough; it is read only if there is another one.
func (c *Controller) lookAt(ctx context.Context, m *v1alpha1.TalosMachine) (station, error) {
	there := station{address: dialled(m)}
	address, err := netip.ParseAddr(there.address)
	if err != nil {
		return there, nil //nolint:nilerr // nothing can be there
	}
	probe, err := c.probe(ctx, address)
	switch {
	case err != nil:
		return there, err
	case probe.Class != v1alpha1.HostMaintenance:
	case string(probe.Fingerprint) == m.Status.MaintenanceFingerprint:
		there.fingerprint = probe.Fingerprint
	default:
		seen, err := c.readMaintenance(ctx, address)
		if err == nil && match([]*v1alpha1.TalosMachine{m}, identity.Identity(seen.facts.Identity), there.address) != nil {
			there.fingerprint = seen.fingerprint
		}
	}
	return there, ctx.Err()
}

// isAt tells whether a configured machine of the cluster answers at the address that its object has.
func (c *Controller) isAt(ctx context.Context, cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine) (bool, error) {
	address, err := netip.ParseAddr(dialled(m))
	if err != nil {
		return false, nil //nolint:nilerr // nothing can be there
	}
	facts, err := c.readConfigured(ctx, cluster, address)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil && match([]*v1alpha1.TalosMachine{m}, identity.Identity(facts.Identity), dialled(m)) != nil, nil
}
