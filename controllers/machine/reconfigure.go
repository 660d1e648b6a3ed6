// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// reconfigure holds what a running machine runs against what it should have. What people decided anew (about the machine,
// its cluster or its patches) is applied, if no reboot is needed for it; what somebody changed on the machine is drift, and
// applied again only if the cluster says so. It says whether the machine may be looked at further.
func (v *visit) reconfigure(ctx context.Context, found *sighting) (done bool, err error) {
	if found.facts.Stage.Stage != v1alpha1.StageRunning {
		return true, nil
	}
	bundle, err := v.bundle(ctx)
	if err != nil {
		return false, v.secretsFailed(err)
	}
	if v.config().AppliedHash == "" && !v.takeOver(bundle.Talos(), found) {
		return true, nil
	}
	if v.m.Status.SettledVersions == nil {
		return true, nil
	}
	wanted, fault, err := v.render(ctx, machineconfig.Inputs{Bundle: bundle.Talos(), Facts: v.facts(found, *v.m.Status.SettledVersions)})
	if err != nil {
		return false, err
	}
	if fault != nil {
		v.postpone(renderReason(fault), fault.Error()+"; the machine keeps its configuration")
		return true, nil
	}
	if err := v.remember(ctx, wanted, *v.m.Status.SettledVersions); err != nil {
		return false, err
	}
	v.config().RenderedHash = wanted.hash
	return v.bring(ctx, found, wanted)
}

// facts are what rendering must know of a running machine.
func (v *visit) facts(found *sighting, versions v1alpha1.SettledVersions) machineconfig.Facts {
	return machineconfig.Facts{MaintenanceVersion: found.facts.TalosVersion, Inventory: found.facts.Inventory, Versions: versions}
}

// bring brings a machine to what it should have, as far as that may be done now.
func (v *visit) bring(ctx context.Context, found *sighting, wanted *rendering) (done bool, err error) {
	differences, err := v.differences(wanted)
	if err != nil {
		v.unknownDrift(err)
		return true, nil
	}
	if len(differences) == 0 {
		v.inSync(wanted)
		return true, nil
	}
	anew := wanted.hash != v.config().AppliedHash || isBeingConfigured(v.m)
	late := machineconfig.NeedsReboot(differences, found.facts.TalosVersion)
	refused := v.refusedBefore(wanted)
	v.noteDrift(differences, anew, len(late) > 0 || refused == v1alpha1.ReasonRebootRequired)
	switch {
	case !anew && v.cluster.Spec.DriftPolicy != v1alpha1.DriftPolicyReapply:
		v.keepApplied()
		return true, nil
	case len(late) > 0:
		v.postpone(v1alpha1.ReasonRebootRequired, waitsForReboot(late))
		return true, nil
	case refused != "":
		return true, nil
	}
	if _, held := v.m.Annotations[v1alpha1.HoldApplyAnnotation]; held {
		v.postpone(v1alpha1.ReasonHeld, fmt.Sprintf("the annotation %s holds the changed configuration back; remove it to go on", v1alpha1.HoldApplyAnnotation))
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
	if operationOn(v.cluster) != "" {
		switch name, err := v.operationForbids(ctx); {
		case err != nil:
			return false, err
		case name != "":
			v.postpone(v1alpha1.ReasonWaitingForTurn, waitsForOperation(name))
			return true, nil
		}
	}
	if why := v.turns.claimLive(v.m, v.cluster, all, v.now); why != "" {
		v.postpone(v1alpha1.ReasonWaitingForTurn, why)
		return true, nil
	}
	return v.sendLive(ctx, found, wanted)
}

// waitsForReboot says what waits.
func waitsForReboot(late []machineconfig.Difference) string {
	const most = 5
	var places []string
	for i, difference := range late {
		if i == most {
			places = append(places, fmt.Sprintf("%d more", len(late)-most))
			break
		}
		places = append(places, place(difference.Document, difference.Path.String()))
	}
	return fmt.Sprintf("%s take effect at a reboot only; nothing was sent. An operation of type configRollout brings it", strings.Join(places, ", "))
}

// place names a field for people.
func place(document, path string) string {
	switch {
	case document == machineconfig.MainDocument:
		return path
	case path == "":
		return document
	default:
		return document + " " + path
	}
}

// refusedBefore is why the machine refused this very configuration, or it was left for a reboot, on top of what it runs:
// it would do that again. Empty if it didn't, or runs something else by now.
func (v *visit) refusedBefore(wanted *rendering) (reason string) {
	condition := find(v.was, v1alpha1.ConditionConfigApplied)
	if condition == nil || condition.Status == metav1.ConditionTrue || v.was.Status.Config == nil || v.was.Status.Config.RenderedHash != wanted.hash ||
		v.was.Status.Config.RunningHash != v.config().RunningHash {
		return ""
	}
	if condition.Reason == v1alpha1.ReasonRefusedByMachine || condition.Reason == v1alpha1.ReasonRebootRequired {
		return condition.Reason
	}
	return ""
}

// sendLive sends a changed configuration over the connection on which the machine was recognised. What it runs afterwards
// is read by the next look, so that an answer that is lost does no harm.
func (v *visit) sendLive(ctx context.Context, found *sighting, wanted *rendering) (bool, error) {
	v.config().MaskedFields = machineconfig.MasksOf(wanted.patches).Join(machineconfig.ParseMasks(v.config().MaskedFields)).Texts()
	v.m.Status.Phase = v1alpha1.PhaseConfiguring
	set(v.m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonApplying, "sending the changed configuration")
	keepGeneration(v)
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonApplying, "the machine is being configured anew")
	v.after = pollFast
	if err := v.save(ctx); err != nil {
		return false, err
	}
	switch name, err := v.operationForbids(ctx); {
	case err != nil:
		return false, err
	case name != "":
		v.turns.releaseLive(v.m)
		v.postpone(v1alpha1.ReasonWaitingForTurn, waitsForOperation(name))
		return true, nil
	}
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	_, err := found.node.ApplyConfiguration(sending, wanted.text, talos.ApplyNoReboot)
	countSent(err)
	v.told = true
	switch {
	case err == nil:
		v.took = true
		v.tell(corev1.EventTypeNormal, v1alpha1.ReasonApplied, "the machine took its changed configuration without a reboot")
		return false, nil
	case talos.IsRefusal(err):
		v.turns.releaseLive(v.m)
		v.refusedLive(err)
		return true, nil
	default:
		set(v.m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonApplying, err.Error())
		keepGeneration(v)
		return false, nil
	}
}

// refusedLive tells a change that the machine would take at a reboot from one that it doesn't take at all. Up to Talos 1.13
// a node says which it is. Source: Talos, internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go.
func (v *visit) refusedLive(err error) {
	if strings.Contains(err.Error(), "immediate mode") {
		v.config().PendingReboot = true
		v.postpone(v1alpha1.ReasonRebootRequired, err.Error()+"; the machine keeps its configuration. An operation of type configRollout brings it")
		return
	}
	v.postpone(v1alpha1.ReasonRefusedByMachine, err.Error()+"; the machine keeps its configuration. Change the patch or decision at fault")
}

// inSync writes down that the machine runs what was decided last.
func (v *visit) inSync(wanted *rendering) {
	v.turns.releaseLive(v.m)
	config := v.config()
	config.RenderedHash, config.AppliedHash = wanted.hash, wanted.hash
	config.Patches = wanted.inputs()
	config.MaskedFields = machineconfig.MasksOf(wanted.patches).Texts()
	config.PendingReboot, config.Drift, config.DriftCount = false, nil, 0
	if v.m.Status.Provisioning != nil {
		v.m.Status.Provisioning.ConfigHash = config.RunningHash
	}
	if condition := find(v.m, v1alpha1.ConditionConfigApplied); condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != v.m.Generation {
		setTrue(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplied, "the machine runs what was decided last")
	}
	setFalse(v.m, v1alpha1.ConditionDriftDetected, v1alpha1.ReasonInSync, "the machine runs what it should")
}

// keepApplied leaves a machine with what somebody changed on it.
func (v *visit) keepApplied() {
	v.turns.releaseLive(v.m)
	if !isTrue(v.m, v1alpha1.ConditionConfigApplied) {
		setTrue(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplied, "the machine took what was decided last; what was changed on it since is in status.config.drift")
	}
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
