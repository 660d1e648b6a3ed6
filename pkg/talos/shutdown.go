// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Shutdown tells the machine to power off. It doesn't drain its Node: a drain that fails would have it powered off without
// stopping its services. The call returns before anything has happened; that the machine falls silent shows that it did.
// Source: Talos, internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer.go (shutdown).
func (n *node) Shutdown(ctx context.Context) error {
	_, err := within(ctx, n, n.options.WriteTimeout, "shutdown", func(ctx context.Context) (struct{}, error) {
		answer, err := n.machine.Shutdown(ctx, &machineapi.ShutdownRequest{Force: true})
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
