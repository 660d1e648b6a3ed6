// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Reboot tells the machine to reboot: through kexec, or through the firmware. It neither cordons nor drains the Node. The
// call returns before anything has happened; that the boot id has changed shows that the machine did.
// Source: Talos, internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go (Reboot).
func (n *node) Reboot(ctx context.Context, powerCycle bool) error {
	mode := machineapi.RebootRequest_DEFAULT
	if powerCycle {
		mode = machineapi.RebootRequest_POWERCYCLE
	}
	_, err := within(ctx, n, n.options.WriteTimeout, "reboot", func(ctx context.Context) (struct{}, error) {
		answer, err := n.machine.Reboot(ctx, &machineapi.RebootRequest{Mode: mode})
		if err != nil {
			return struct{}{}, err
		}
		for _, message := range answer.GetMessages() {
			if text := message.GetMetadata().GetError(); text != "" {
				return struct{}{}, errors.New(oneLine(text))
			}
		}
		return struct{}{}, nil
	})
	return err
}

// EtcdForfeitLeadership lets the node's member hand the lead of etcd to another one. One that doesn't lead does nothing.
// Source: Talos, internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go (EtcdForfeitLeadership).
func (n *node) EtcdForfeitLeadership(ctx context.Context) error {
	_, err := within(ctx, n, n.options.WriteTimeout, "handing over the lead of etcd", func(ctx context.Context) (struct{}, error) {
		answer, err := n.machine.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
		if err != nil {
			return struct{}{}, err
		}
		for _, message := range answer.GetMessages() {
			if text := message.GetMetadata().GetError(); text != "" {
				return struct{}{}, errors.New(oneLine(text))
			}
		}
		return struct{}{}, nil
	})
	return err
}
