// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// stepStage leaves a machine its configuration for the next boot.
const stepStage = "Stage"

// rebootKind reboots machines.
func rebootKind() kind {
	return kind{
		name: "reboot", bootMark: stepGates, mends: true,
		steps: func(m *v1alpha1.TalosMachine, gated bool) []string { return around(m, gated) },
	}
}

// configRolloutKind reboots the machines whose configuration waits for it.
func configRolloutKind() kind {
	return kind{
		name: "configRollout", bootMark: stepStage,
		plan: func(p *planning) {
			p.chosen = slices.DeleteFunc(p.chosen, func(m *v1alpha1.TalosMachine) bool { return !waitsForReboot(m) })
		},
		steps: func(m *v1alpha1.TalosMachine, gated bool) []string { return around(m, gated, stepStage) },
		own:   map[string]step{stepStage: {try: (*visit).stage, patience: lasting(5 * time.Minute)}},
		still: func(v *visit, _ context.Context) (outcome, error) {
			return outcome{needless: !waitsForReboot(v.m), message: nothingWaits}, nil
		},
		beforeReboot: (*visit).stageAnew,
		verified:     (*visit).runsWhatWasStaged,
		putBack:      (*visit).unstage,
	}
}

// nothingWaits is why a machine is left out of a configRollout.
const nothingWaits = "nothing waits for a reboot any more"

// waitsForReboot tells whether a machine has a configuration that takes effect at a reboot only.
func waitsForReboot(m *v1alpha1.TalosMachine) bool {
	return m.Status.Config != nil && m.Status.Config.PendingReboot
}

// stage leaves the machine its configuration for the next boot.
func (v *visit) stage(ctx context.Context) (outcome, error) {
	hash, err := v.Stager.StageConfiguration(ctx, v.m.Name, v.record.ConfigHash != "")
	switch {
	case err != nil:
		return waiting("%s", err)
	case hash == "":
		return outcome{needless: true, message: nothingWaits}, nil
	default:
		v.record.ConfigHash = hash
		return done("its configuration is staged")
	}
}

// stageAnew has the machine reboot into what it should have by now.
func (v *visit) stageAnew(ctx context.Context) (outcome, error) {
	hash, err := v.Stager.StageConfiguration(ctx, v.m.Name, true)
	if err != nil {
		return waiting("%s", err)
	}
	if hash != v.record.ConfigHash {
		v.record.ConfigHash = hash // is written down before the machine is told
		return outcome{message: "its configuration was staged anew", again: pollStep}, nil
	}
	return outcome{done: true}, nil
}

// runsWhatWasStaged tells whether a machine that is back runs the configuration that was left with it.
func (v *visit) runsWhatWasStaged(ctx context.Context, node talos.ConfiguredNode) (outcome, error) {
	if v.record.ConfigHash == "" {
		return outcome{done: true}, nil
	}
	running, err := node.RunningConfiguration(ctx)
	if err != nil {
		return waiting("its configuration can't be read: %s", err)
	}
	if machineconfig.Hash(running) != v.record.ConfigHash {
		return waiting("it booted, and runs another configuration than the one that was left with it")
	}
	return outcome{done: true}, nil
}

// unstagePatience is how long a machine may not answer whose staged configuration is to be taken back.
const unstagePatience = time.Minute

// unstage takes back what was left with a machine for its next boot, if it didn't reboot.
func (v *visit) unstage(ctx context.Context) (outcome, error) {
	if v.record.ConfigHash == "" {
		return outcome{done: true}, nil
	}
	id, err := v.bootID(ctx)
	if err == nil && id == v.record.BootID {
		err = v.Stager.UnstageConfiguration(ctx, v.m.Name)
	}
	switch {
	case err != nil && v.lasted(v.record) < unstagePatience:
		return waiting("the configuration for its next boot can't be taken back: %s", err)
	case err != nil:
		v.tell(corev1.EventTypeWarning, "ConfigurationStaged", "%s: the configuration for its next boot can't be taken back, and takes effect then: %s", v.m.Name, err)
	}
	return outcome{done: true}, nil
}
