// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// StageConfiguration leaves a running machine the configuration that it should have, for its next boot: if something waits
// for a reboot, or anyway. It may be called any number of times. The hash is that of what was left; empty, and no error,
// if nothing was. It changes nothing of what the machine runs now, so it needs no turn; whoever reboots the machine sees
// to that.
func (c *Controller) StageConfiguration(ctx context.Context, name string, anyway bool) (hash string, err error) {
	v, found, err := c.reach(ctx, name)
	if err != nil {
		return "", err
	}
	defer found.close()
	if _, held := v.m.Annotations[v1alpha1.HoldApplyAnnotation]; held {
		return "", fmt.Errorf("the annotation %s holds the configuration of machine %s back; remove it to go on", v1alpha1.HoldApplyAnnotation, name)
	}
	return v.stage(ctx, found, anyway)
}

// UnstageConfiguration has the machine's next boot be with the configuration that it runs.
func (c *Controller) UnstageConfiguration(ctx context.Context, name string) error {
	v, found, err := c.reach(ctx, name)
	if err != nil {
		return err
	}
	defer found.close()
	running, err := found.node.RunningConfiguration(ctx)
	if err != nil {
		return err
	}
	return v.sendStaged(ctx, found, running)
}

// reach finds a running machine that has a configuration by Ichor.
func (c *Controller) reach(ctx context.Context, name string) (*visit, *sighting, error) {
	m, err := c.machines.Get(name)
	if err != nil {
		return nil, nil, fmt.Errorf("read machine %s: %w", name, err)
	}
	v := c.visit(m)
	if v.m.Spec.ApprovalState != v1alpha1.ApprovalApproved || v.m.DeletionTimestamp != nil || v.m.Status.SettledVersions == nil || !v.findCluster() || endsWithMachines(v.cluster) {
		return nil, nil, fmt.Errorf("machine %s has no configuration by Ichor", name)
	}
	found, err := v.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	if found.kind != sawConfigured {
		found.close()
		return nil, nil, fmt.Errorf("machine %s doesn't answer: %s", name, found.message)
	}
	return v, found, nil
}

// stage sends what waits for a reboot, over the connection on which the machine was recognised.
func (v *visit) stage(ctx context.Context, found *sighting, anyway bool) (string, error) {
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return "", fmt.Errorf("list machines: %w", err)
	}
	if why := conflict(v.m, all); why != "" {
		return "", errors.New(why)
	}
	if v.running, err = found.node.RunningConfiguration(ctx); err != nil {
		return "", err
	}
	v.config().RunningHash = machineconfig.Hash(v.running)
	bundle, err := v.bundle(ctx)
	if err != nil {
		return "", err
	}
	wanted, fault, err := v.render(ctx, machineconfig.Inputs{Bundle: bundle.Talos(), Facts: v.facts(found, *v.m.Status.SettledVersions)})
	if err = errors.Join(err, fault); err != nil {
		return "", err
	}
	differences, err := v.differences(wanted)
	if err != nil {
		return "", err
	}
	late := machineconfig.NeedsReboot(differences, found.facts.TalosVersion)
	if !anyway && (len(differences) == 0 || len(late) == 0 && v.refusedBefore(wanted) != v1alpha1.ReasonRebootRequired) {
		return "", nil
	}
	// What is masked in what the machine may run is on record before it may.
	v.m = v.was.DeepCopy()
	v.config().MaskedFields = machineconfig.MasksOf(wanted.patches).Join(machineconfig.ParseMasks(v.config().MaskedFields)).Texts()
	if err := v.save(ctx); err != nil {
		return "", err
	}
	return wanted.hash, v.sendStaged(ctx, found, wanted.text)
}

func (v *visit) sendStaged(ctx context.Context, found *sighting, text []byte) error {
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	_, err := found.node.ApplyConfiguration(sending, text, talos.ApplyStaged)
	countSent(err)
	if err != nil {
		return fmt.Errorf("leave machine %s its configuration: %w", v.m.Name, err)
	}
	return nil
}
