// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// Reset wipes the machine's configuration and its /var and reboots it into maintenance mode; user disks and META are
// kept. Gracefully means that it drains its Node and leaves etcd first. The call returns before anything has happened.
// Source: Talos, internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer.go (reset).
func (n *node) Reset(ctx context.Context, graceful bool) error {
	return n.ResetDisks(ctx, graceful, nil)
}

// ResetDisks is Reset that wipes user disks as well, by their devices such as /dev/sda.
func (n *node) ResetDisks(ctx context.Context, graceful bool, devices []string) error {
	_, err := within(ctx, n, n.options.WriteTimeout, "reset", func(ctx context.Context) (struct{}, error) {
		answer, err := n.machine.Reset(ctx, &machineapi.ResetRequest{
			Graceful: graceful,
			Reboot:   true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: constants.StatePartitionLabel, Wipe: true},
				{Label: constants.EphemeralPartitionLabel, Wipe: true},
			},
			UserDisksToWipe: devices,
		})
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
