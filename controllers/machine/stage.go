// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// StageConfiguration leaves a running machine the configuration that it should have, for its next boot. It may be called
// any number of times. Nothing is staged, and that is no error, where nothing waits for a reboot. It changes nothing of
// what the machine runs now, so it needs no turn; whoever reboots the machine sees to that.
func (c *Controller) StageConfiguration(ctx context.Context, name string) (staged bool, err error) {
	m, err := c.machines.Get(name)
	if err != nil {
		return false, fmt.Errorf("read machine %s: %w", name, err)
	}
	v := c.visit(m)
	if v.m.Spec.ApprovalState != v1alpha1.ApprovalApproved || v.m.DeletionTimestamp != nil || v.m.Status.SettledVersions == nil || !v.findCluster() {
		return false, fmt.Errorf("machine %s has no configuration by Ichor", name)
	}
	if _, held := v.m.Annotations[v1alpha1.HoldApplyAnnotation]; held {
		return false, fmt.Errorf("the annotation %s holds the configuration of machine %s back; remove it to go on", v1alpha1.HoldApplyAnnotation, name)
	}
	found, err := v.look(ctx)
	if err != nil {
		return false, err
	}
	defer found.close()
	if found.kind != sawConfigured {
		return false, fmt.Errorf("machine %s doesn't answer: %s", name, found.message)
	}
	return v.stage(ctx, found)
}

// stage sends what waits for a reboot, over the connection on which the machine was recognised.
func (v *visit) stage(ctx context.Context, found *sighting) (bool, error) {
	var err error
	if v.running, err = found.node.RunningConfiguration(ctx); err != nil {
		return false, err
	}
	v.config().RunningHash = machineconfig.Hash(v.running)
	bundle, err := v.bundle(ctx)
	if err != nil {
		return false, err
	}
	wanted, fault, err := v.render(ctx, machineconfig.Inputs{Bundle: bundle.Talos(), Facts: v.facts(found, *v.m.Status.SettledVersions)})
	if err = errors.Join(err, fault); err != nil {
		return false, err
	}
	differences, err := v.differences(wanted)
	if err != nil {
		return false, err
	}
	late := machineconfig.NeedsReboot(differences, found.facts.TalosVersion)
	if len(differences) == 0 || len(late) == 0 && v.refusedBefore(wanted) != v1alpha1.ReasonRebootRequired {
		return false, nil
	}
	// What is masked in what the machine may run is on record before it may.
	v.config().MaskedFields = machineconfig.MasksOf(wanted.patches).Join(machineconfig.ParseMasks(v.config().MaskedFields)).Texts()
	if err := v.save(ctx); err != nil {
		return false, err
	}
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	_, err = found.node.ApplyConfiguration(sending, wanted.text, talos.ApplyStaged)
	countSent(err)
	if err != nil {
		return false, fmt.Errorf("leave machine %s its configuration: %w", v.m.Name, err)
	}
	return true, nil
}
