// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// resetSilence is how long a machine that was reset may be silent before it is taken as gone: it comes back in
// maintenance mode, perhaps at another address, where it is found as a new machine.
const resetSilence = 5 * time.Minute

// resetPatience is how long a machine that was told to wipe itself may go on running before it is told again.
const resetPatience = time.Minute

// resetter is a node that can be wiped.
type resetter interface {
	// Reset wipes the machine's state and configuration and reboots it; of the user disks, those that are named.
	Reset(ctx context.Context, options talos.ResetOptions) error
}

// remove lets a machine go: at once if nothing was ever sent to it or it is to be left as it is, else when it was wiped,
// or given up.
func (v *visit) remove(ctx context.Context) error {
	if !slices.Contains(v.m.Finalizers, v1alpha1.MachineFinalizer) {
		return nil
	}
	adopted := v.m.Spec.Origin == v1alpha1.MachineAdopted
	untouched := v.m.Spec.ApprovalState != v1alpha1.ApprovalApproved || !adopted && !touched(v.m)
	if untouched || v.m.Spec.DeletionPolicy == v1alpha1.DeletionOrphan || v.orphaned() {
		return v.letGoAsItIs(ctx)
	}
	v.m.Status.Phase = v1alpha1.PhaseRemoving
	if !v.findCluster() {
		return nil
	}
	found, err := v.look(ctx)
	if err != nil {
		return v.secretsFailed(err)
	}
	defer found.close()
	v.note(found)
	switch found.kind {
	case sawConfigured:
		return v.reset(ctx, found)
	case sawMaintenance:
		return v.removeReset(ctx, found)
	default:
		return v.removeSilent(ctx, found)
	}
}

// touched tells whether the machine was ever sent a configuration, or may have been. One that was wiped meanwhile has no
// record of that; its versions and its Node stay.
func touched(m *v1alpha1.TalosMachine) bool {
	return sent(m) || m.Status.SettledVersions != nil || m.Status.NodeName != ""
}

// letGo takes the finalizer off, which ends the object.
func (v *visit) letGo(ctx context.Context) error {
	if err := v.save(ctx); err != nil {
		return err
	}
	released := v.m.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(name string) bool { return name == v1alpha1.MachineFinalizer })
	_, err := v.Client.IchorV1alpha1().TalosMachines().Finalize(ctx, v.m.Name, released, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take the finalizer off machine %s: %w", v.m.Name, err)
	}
	v.was = v.m
	return nil
}

// letGoAsItIs lets a machine go that nothing is written to. A Node that was cordoned for its removal is given back.
func (v *visit) letGoAsItIs(ctx context.Context) error {
	if record := v.m.Status.Removal; record != nil && record.DrainStartedAt != nil && v.m.Status.NodeName != "" {
		if err := v.Drainer.Uncordon(ctx, v.m.Status.NodeName, v.m.UID); err != nil {
			return err
		}
	}
	return v.letGo(ctx)
}

// reset wipes a machine that runs, if that leaves etcd with a quorum, once its Node is drained. That it is about to be
// wiped, and which of its disks, is written down before it is told, so that no second one is while the answer is awaited.
func (v *visit) reset(ctx context.Context, found *sighting) error {
	v.describe(found.facts)
	if stage := found.facts.Stage.Stage; leaving(v.m) {
		since := v.now.Sub(find(v.m, v1alpha1.ConditionReset).LastTransitionTime.Time)
		if stage != v1alpha1.StageRunning || since < resetPatience {
			message := fmt.Sprintf("the machine is being wiped (%s)", stage)
			if since > resetSilence {
				message += "; that takes longer than it should, and its console says why. Reset it by hand, or power it off and give it up: ichor machine remove " + v.m.Name + " --force"
			}
			v.removing(reasonReset, message, pollFast)
			return nil
		}
		// It may be long until it can be told again, and meanwhile it is in nobody's way: it may be waiting for another
		// machine to leave.
		v.setReset(metav1.ConditionFalse, reasonRunsOn, "the machine was told to wipe itself, and runs on")
	}
	devices, why := v.settleDisks(found.facts)
	if why != "" {
		v.removing(v1alpha1.ReasonWrongDisk, why, pollSlow)
		return nil
	}
	if empty, err := v.emptyNode(ctx, found); err != nil || !empty {
		return err
	}
	d, why, err := v.plan(ctx, found)
	if err != nil {
		return err
	}
	if why != "" {
		v.removing(reasonEtcdUnhealthy, why, pollWaiting)
		return nil
	}
	defer d.close()
	if why := v.unsaved(ctx, d.reader(found.node)); why != "" { // one that took a moment was judged with what etcd was before
		v.removing(reasonNoSnapshot, why, pollSlow)
		return nil
	}
	d.userDisks = devices
	node, ok := found.node.(resetter)
	if !ok {
		return errors.New("the connection to the machine can't reset it")
	}
	release, reason, why, err := v.takeLeave(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		v.stays(reason, why)
		return nil
	}
	defer release()
	v.setReset(metav1.ConditionUnknown, reasonResetting, "the machine is being told to wipe itself: "+machineconfig.DescribeFates(v.removal().Disks))
	v.removing(reasonResetting, "the machine is being told to wipe itself", pollFast)
	if err := v.save(ctx); err != nil {
		return err
	}
	if waits, err := v.gaveWay(ctx); err != nil || waits {
		return err
	}
	return v.sendReset(context.WithoutCancel(ctx), node, d)
}

// sendReset carries a departure out and writes down what became of it. Its calls have bounds of their own.
func (v *visit) sendReset(ctx context.Context, node resetter, d *departure) error {
	v.told = true
	if d.member != nil {
		if err := d.peer.EtcdRemoveMember(ctx, d.member.ID); err != nil {
			v.setReset(metav1.ConditionFalse, reasonEtcdUnhealthy, "its etcd member could not be removed")
			v.removing(reasonEtcdUnhealthy, fmt.Sprintf("etcd member %x of the machine could not be removed: %s", d.member.ID, err), pollWaiting)
			return nil
		}
	}
	switch err := node.Reset(ctx, talos.ResetOptions{Graceful: d.graceful, UserDisks: d.userDisks}); {
	case err == nil:
		v.tell(corev1.EventTypeNormal, reasonReset, "the machine is being wiped: %s", machineconfig.DescribeFates(v.removal().Disks))
		v.setReset(metav1.ConditionTrue, reasonReset, "the machine accepted to be wiped")
		v.removing(reasonReset, "the machine is being wiped", pollFast)
	case talos.IsLost(err):
		v.removing(reasonResetting, fmt.Sprintf("whether the machine is being wiped isn't known: %s", err), pollFast)
	default:
		v.setReset(metav1.ConditionFalse, v1alpha1.ReasonRefusedByMachine, "the machine refused to be wiped")
		v.removing(v1alpha1.ReasonRefusedByMachine, fmt.Sprintf("the machine refused to be wiped: %s", err), pollSlow)
	}
	return nil
}

// setReset writes the condition Reset with the time at which it was written: what is waited for counts from there.
func (v *visit) setReset(status metav1.ConditionStatus, reason, message string) {
	meta.RemoveStatusCondition(&v.m.Status.Conditions, v1alpha1.ConditionReset)
	meta.SetStatusCondition(&v.m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReset, Status: status, Reason: reason, Message: message, ObservedGeneration: v.m.Generation, LastTransitionTime: *v.timestamp(),
	})
}

func (v *visit) removing(reason, message string, after time.Duration) {
	setFalse(v.m, v1alpha1.ConditionReady, reason, "being removed: "+message)
	v.after = after
}

// removeReset ends the removal of a machine that is back in maintenance mode. It is recognised by a connection that
// nothing is written over. One that was not told to wipe itself may still be on its way out of maintenance mode, or be
// another that claims its place.
func (v *visit) removeReset(ctx context.Context, found *sighting) error {
	facts, err := v.readMaintenance(ctx, found)
	if err != nil {
		v.removing(v1alpha1.ReasonUnreachable, err.Error(), pollWaiting)
		return nil
	}
	if !same(v.m.Spec.Identity, facts.Identity) {
		return v.removeSilent(ctx, found)
	}
	if isTrue(v.m, v1alpha1.ConditionReset) {
		return v.forget(ctx)
	}
	if wait := v.undecided(); wait > 0 {
		v.removing(v1alpha1.ReasonApplying, "finding out whether the configuration that was being sent has arrived", wait)
		return nil
	}
	record := v.m.Status.Provisioning
	if record != nil && record.IntendedAt != nil && record.Fingerprint == string(found.probe.Fingerprint) {
		v.removing(reasonLeavingMaintenance, fmt.Sprintf("the machine at %s was sent a configuration since it booted, and may be about to install it; it is wiped once it runs. Reboot it if it doesn't go on, or set spec.deletionPolicy to Orphan to leave it as it is", found.address), pollWaiting)
		return nil
	}
	if v.mayBeImpostor(found) {
		signs, err := v.signsOfLife(found)
		if err != nil {
			return err
		}
		if len(signs) > 0 && v.forced() {
			return v.giveUp(ctx, "a machine in maintenance mode answers in its place, but it may be alive: "+strings.Join(signs, "; "))
		}
		if len(signs) > 0 {
			v.removing(v1alpha1.ReasonWiped, fmt.Sprintf("a machine in maintenance mode answers at %s in this one's place, but this one may be alive: %s; %s", found.address, strings.Join(signs, "; "), vouchFor(found)), pollWaiting)
			return nil
		}
	}
	// Not by what Ichor told it, so it didn't leave etcd before.
	if waits, err := v.leaveDead(ctx); err != nil || waits {
		return err
	}
	return v.forget(ctx)
}

// removeSilent waits for a machine that doesn't answer. One that accepted to be wiped isn't waited for for ever, if etcd
// has no member of it any more, and one that a person said so of is given up. Whether one heard of it whose answer was lost
// isn't known: it may hold all that it held.
func (v *visit) removeSilent(ctx context.Context, found *sighting) error {
	if givenUp(v.m) {
		return v.giveUp(ctx, found.message)
	}
	why := "the machine doesn't answer, so it can't be wiped"
	if condition := find(v.m, v1alpha1.ConditionReset); leaving(v.m) {
		if v.now.Sub(condition.LastTransitionTime.Time) <= resetSilence {
			v.removing(reasonReset, "the machine was told to wipe itself and is expected back in maintenance mode", pollFast)
			return nil
		}
		why = "the machine was to be told to wipe itself and was not seen since, and whether it heard of it isn't known"
		if condition.Status == metav1.ConditionTrue {
			out, in, err := v.outOfEtcd(ctx)
			if err != nil {
				return err
			}
			if out {
				v.tell(corev1.EventTypeWarning, reasonReset, "the machine was told to wipe itself and was not seen since; it is found again where it comes back")
				return v.forget(ctx)
			}
			why = "the machine was told to wipe itself and was not seen since, and it can't have done so: " + in
		}
	}
	if v.forced() {
		return v.giveUp(ctx, why+": "+found.message)
	}
	v.removing(v1alpha1.ReasonUnreachable, why+": "+found.message+"; to give it up: ichor machine remove "+v.m.Name+" --force; to forget it and leave its Node and etcd member as they are, set spec.deletionPolicy to Orphan", pollWaiting)
	return nil
}

// forget deletes the machine's Node and lets the object go.
func (v *visit) forget(ctx context.Context) error {
	node, err := v.nodes.ForMachine(v.m.Status.NodeName, v.m.Status.Addresses)
	if err != nil {
		return err
	}
	if node != nil && v.m.Status.NodeName != "" {
		if err := v.nodes.Delete(ctx, node); err != nil {
			return err
		}
	}
	return v.letGo(ctx)
}
