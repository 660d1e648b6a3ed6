// SPDX-License-Identifier: Apache-2.0

package killer

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"maesh.dev/ichor/pkg/talos"
)

// onTheWay is how long after its begin a call of a machine counts as sent.
const onTheWay = 15 * time.Millisecond

// Dialer kills at the calls that change a machine.
func (k *Killer) Dialer(next talos.Dialer) talos.Dialer { return &dialer{k, next} }

type dialer struct {
	killer *Killer
	next   talos.Dialer
}

// DialMaintenance implements talos.Dialer.
func (d *dialer) DialMaintenance(ctx context.Context, address netip.Addr, pin talos.Fingerprint) (talos.MaintenanceNode, error) {
	node, err := d.next.DialMaintenance(ctx, address, pin)
	if err != nil {
		return nil, err
	}
	return &maintenance{node, d.killer, address}, nil
}

// DialConfigured implements talos.Dialer.
func (d *dialer) DialConfigured(ctx context.Context, address netip.Addr, credentials talos.Credentials) (talos.ConfiguredNode, error) {
	node, err := d.next.DialConfigured(ctx, address, credentials)
	if err != nil {
		return nil, err
	}
	return &configured{node, d.killer, address}, nil
}

type maintenance struct {
	talos.MaintenanceNode
	killer  *Killer
	address netip.Addr
}

// ApplyConfiguration implements talos.MaintenanceNode.
func (m *maintenance) ApplyConfiguration(ctx context.Context, config []byte, mode talos.ApplyMode) (result talos.ApplyResult, err error) {
	err = m.killer.call("first ApplyConfiguration", m.address, func() error {
		result, err = m.MaintenanceNode.ApplyConfiguration(ctx, config, mode)
		return err
	})
	return result, err
}

type configured struct {
	talos.ConfiguredNode
	killer  *Killer
	address netip.Addr
}

// ApplyConfiguration implements talos.MaintenanceNode.
func (c *configured) ApplyConfiguration(ctx context.Context, config []byte, mode talos.ApplyMode) (result talos.ApplyResult, err error) {
	err = c.killer.call("later ApplyConfiguration", c.address, func() error {
		result, err = c.ConfiguredNode.ApplyConfiguration(ctx, config, mode)
		return err
	})
	return result, err
}

// Bootstrap implements talos.ConfiguredNode.
func (c *configured) Bootstrap(ctx context.Context) error {
	return c.killer.call("Bootstrap", c.address, func() error { return c.ConfiguredNode.Bootstrap(ctx) })
}

// EtcdRemoveMember implements talos.ConfiguredNode.
func (c *configured) EtcdRemoveMember(ctx context.Context, id uint64) error {
	return c.killer.call("EtcdRemoveMember", c.address, func() error { return c.ConfiguredNode.EtcdRemoveMember(ctx, id) })
}

// Reset wipes the machine. Whoever may do that asks the connection for this method.
func (c *configured) Reset(ctx context.Context, options talos.ResetOptions) error {
	resetter, ok := c.ConfiguredNode.(interface {
		Reset(ctx context.Context, options talos.ResetOptions) error
	})
	if !ok {
		return errors.New("the connection to the machine can't reset it")
	}
	return c.killer.call("Reset", c.address, func() error { return resetter.Reset(ctx, options) })
}

// call kills around a call of a machine. A machine takes each of these calls once, so it can't be killed at every moment
// of the same one: at every second machine the call is on its way only, and at the others it was answered.
func (k *Killer) call(act string, address netip.Addr, do func() error) error {
	w := Write{Act: act, Object: address.String()}
	if k.options.Unsent {
		k.At(Unsent, w)
	}
	octets := address.AsSlice()
	if odd := octets[len(octets)-1]%2 == 1; odd != k.options.Swap && k.due(Unanswered, w) {
		timer := time.AfterFunc(onTheWay, func() { k.At(Unanswered, w) })
		defer timer.Stop()
		err := do()
		if err == nil {
			k.At(Unanswered, w)
		}
		return err
	}
	err := do()
	if err == nil {
		k.At(Answered, w)
	}
	return err
}
