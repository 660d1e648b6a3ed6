// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// reasonRebootRequired is a configuration that the machine takes at a reboot only.
const reasonRebootRequired = "RebootRequired"

// reconfigure gives a running machine what a person decided anew (labels, network, further disks), without a reboot. It
// says whether the machine has what it should have. The generation that the condition ConfigApplied was observed at is
// the one that the machine was configured for: changes of anything but the machine's own spec don't come this way. A
// machine that was adopted with a configuration of its own keeps it.
func (v *visit) reconfigure(ctx context.Context, found *sighting) (done bool, err error) {
	condition := find(v.m, v1alpha1.ConditionConfigApplied)
	if v.config().AppliedHash == "" || condition == nil || condition.ObservedGeneration >= v.m.Generation || v.m.Status.SettledVersions == nil {
		return true, nil
	}
	if stage := found.facts.Stage.Stage; stage != v1alpha1.StageRunning {
		return true, nil
	}
	if _, held := v.m.Annotations[v1alpha1.HoldApplyAnnotation]; held {
		v.postpone(v1alpha1.ReasonHeld, fmt.Sprintf("the annotation %s holds the changed configuration back; remove it to go on", v1alpha1.HoldApplyAnnotation))
		return true, nil
	}
	bundle, err := v.bundle(ctx)
	if err != nil {
		return false, v.secretsFailed(err)
	}
	configuration, err := machineconfig.Render(bundle.Talos(), v.cluster, v.m, machineconfig.Facts{
		MaintenanceVersion: found.facts.TalosVersion, Inventory: found.facts.Inventory, Versions: *v.m.Status.SettledVersions,
	})
	if err != nil {
		v.postpone(v1alpha1.ReasonRenderFailed, err.Error()+"; the machine keeps its configuration")
		return true, nil
	}
	hash := machineconfig.Hash(configuration)
	if hash == v.config().RunningHash {
		v.reconfigured(hash)
		return true, nil
	}
	if condition.Reason == reasonRebootRequired && hash == v.config().RenderedHash {
		return true, nil
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list machines: %w", err)
	}
	if why := conflict(v.m, all); why != "" {
		v.postpone(v1alpha1.ReasonConflict, why)
		return true, nil
	}
	if !v.turns.claimLive(v.m, all, v.now) {
		v.postpone(v1alpha1.ReasonWaitingForTurn, "control planes are configured one at a time, and another one is on its way")
		return true, nil
	}
	return v.sendLive(ctx, found, configuration, hash)
}

// sendLive sends a changed configuration over the connection on which the machine was recognised. What it runs afterwards
// is read by the next look, so that an answer that is lost does no harm.
func (v *visit) sendLive(ctx context.Context, found *sighting, configuration []byte, hash string) (bool, error) {
	v.config().RenderedHash = hash
	v.m.Status.Phase = v1alpha1.PhaseConfiguring
	set(v.m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonApplying, "sending the changed configuration")
	keepGeneration(v)
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonApplying, "the machine is being configured anew")
	v.after = pollFast
	if err := v.save(ctx); err != nil {
		return false, err
	}
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	_, err := found.node.ApplyConfiguration(sending, configuration, talos.ApplyNoReboot)
	countSent(err)
	v.told = true
	switch {
	case err == nil:
		v.tell(corev1.EventTypeNormal, v1alpha1.ReasonApplied, "the machine took its changed configuration without a reboot")
		return false, nil
	case talos.IsRefusal(err):
		v.turns.releaseLive(v.m.UID)
		v.postpone(reasonRebootRequired, err.Error()+"; the machine keeps its configuration. If it asks for a reboot, remove the machine and approve it again")
		return true, nil
	default:
		set(v.m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonApplying, err.Error())
		keepGeneration(v)
		return false, nil
	}
}

// reconfigured writes down that the machine runs what was decided last.
func (v *visit) reconfigured(hash string) {
	v.turns.releaseLive(v.m.UID)
	v.config().RenderedHash, v.config().AppliedHash = hash, hash
	if v.m.Status.Provisioning != nil {
		v.m.Status.Provisioning.ConfigHash = hash
	}
	setTrue(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplied, "the machine runs what was decided last")
}

// postpone says why the machine keeps the configuration that it has.
func (v *visit) postpone(reason, message string) {
	if condition := find(v.m, v1alpha1.ConditionConfigApplied); reason != v1alpha1.ReasonWaitingForTurn && (condition == nil || condition.Reason != reason) {
		v.tell(corev1.EventTypeWarning, reason, "%s", message)
	}
	setFalse(v.m, v1alpha1.ConditionConfigApplied, reason, message)
	keepGeneration(v)
}

// keepGeneration keeps the generation that the machine is configured for: it is not the newest yet.
func keepGeneration(v *visit) {
	before := find(v.was, v1alpha1.ConditionConfigApplied)
	if before != nil {
		find(v.m, v1alpha1.ConditionConfigApplied).ObservedGeneration = before.ObservedGeneration
	}
}
