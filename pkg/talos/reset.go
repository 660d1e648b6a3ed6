// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// ResetOptions say how a machine is wiped.
type ResetOptions struct {
	// Graceful means that the machine drains its Node and leaves etcd first, and isn't wiped if it can't leave.
	Graceful bool
	// UserDisks are the paths, in this boot, of disks that are wiped besides, for instance /dev/sdb.
	UserDisks []string
}

// Reset wipes the machine's configuration and its /var and reboots it into maintenance mode; META is kept, and user disks
// but for those that are named. The call returns before anything has happened.
// Source: Talos, internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer.go (reset).
func (n *node) Reset(ctx context.Context, options ResetOptions) error {
	_, err := within(ctx, n, n.options.WriteTimeout, "reset", func(ctx context.Context) (struct{}, error) {
		answer, err := n.machine.Reset(ctx, &machineapi.ResetRequest{
			Graceful:        options.Graceful,
			Reboot:          true,
			UserDisksToWipe: options.UserDisks,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: constants.StatePartitionLabel, Wipe: true},
				{Label: constants.EphemeralPartitionLabel, Wipe: true},
			},
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
