// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxConfiguration is the size of the largest configuration that is sent. Source: Talos, constants.GRPCMaxMessageSize.
const maxConfiguration = 32 << 20

// applyModes never hold the protocol's zero value, which means a reboot. Source: Talos, api/machine/machine.proto.
var applyModes = map[ApplyMode]machineapi.ApplyConfigurationRequest_Mode{
	ApplyAuto:     machineapi.ApplyConfigurationRequest_AUTO,
	ApplyNoReboot: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	ApplyStaged:   machineapi.ApplyConfigurationRequest_STAGED,
}

func (n *node) ApplyConfiguration(ctx context.Context, config []byte, mode ApplyMode) (ApplyResult, error) {
	talosMode, known := applyModes[mode]
	switch {
	case !n.verified:
		return ApplyResult{}, &ApplyError{Err: errors.New("the machine's certificate was not compared with a fingerprint")}
	case !known:
		return ApplyResult{}, &ApplyError{Err: fmt.Errorf("%d is no mode", mode)}
	case len(config) == 0 || len(config) > maxConfiguration:
		return ApplyResult{}, &ApplyError{Err: fmt.Errorf("a configuration of %d bytes can't be sent", len(config))}
	}
	ctx, cancel := context.WithTimeout(ctx, n.options.WriteTimeout)
	defer cancel()
	before := n.channel.wire.wrote.Load()
	answer, err := n.machine.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: config, Mode: talosMode})
	if err != nil {
		return ApplyResult{}, classifyApply(err, n.channel.wire.wrote.Load()-before, len(config))
	}
	return applyResult(answer)
}

// classifyApply tells whether a configuration can have reached the machine. A call counts as a whole: a node acts on a
// complete message only, so when fewer bytes than the configuration has were written, nothing happened.
func classifyApply(err error, wrote int64, size int) *ApplyError {
	shown := errors.New(shownApplyError(err))
	if wrote < int64(size) {
		return &ApplyError{Err: shown}
	}
	switch Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented,
		codes.AlreadyExists, codes.NotFound, codes.OutOfRange, codes.Aborted,
		codes.Unknown: // Talos 1.12 refuses a faulty configuration with it
		return &ApplyError{Delivered: true, Err: shown}
	default:
		return &ApplyError{Delivered: true, MaybeDelivered: true, Err: shown}
	}
}

// shownApplyError is the machine's answer without secrets: it may quote the configuration.
func shownApplyError(err error) string {
	if answer, ok := status.FromError(err); ok {
		return fmt.Sprintf("%s: %s", answer.Code(), withoutSecrets(answer.Message()))
	}
	return withoutSecrets(err.Error())
}

// applyResult reads a machine's answer. A direct call has one message without metadata; an error in there is a refusal.
func applyResult(answer *machineapi.ApplyConfigurationResponse) (ApplyResult, error) {
	var result ApplyResult
	for _, message := range answer.GetMessages() {
		if text := message.GetMetadata().GetError(); text != "" {
			return ApplyResult{}, &ApplyError{Delivered: true, Err: errors.New(withoutSecrets(text))}
		}
		// Up to 1.12 the answer in maintenance mode has neither a mode nor details, and the mode that isn't there reads as
		// REBOOT. Source: Talos 1.12, internal/app/maintenance/server.go.
		result.Rebooting = result.Rebooting || message.GetMode() == machineapi.ApplyConfigurationRequest_REBOOT && message.GetModeDetails() != ""
		for _, warning := range message.GetWarnings() {
			if len(result.Warnings) < maxUnmet {
				result.Warnings = append(result.Warnings, withoutSecrets(warning))
			}
		}
		result.Details = withoutSecrets(message.GetModeDetails())
	}
	return result, nil
}

func (n *node) Bootstrap(ctx context.Context) error {
	_, err := within(ctx, n, n.options.WriteTimeout, "etcd bootstrap", func(ctx context.Context) (struct{}, error) {
		answer, err := n.machine.Bootstrap(ctx, &machineapi.BootstrapRequest{})
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
