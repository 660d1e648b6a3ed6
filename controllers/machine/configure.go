// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// applyTimeout bounds the sending of a configuration, measured from when its intent was written.
	applyTimeout = 20 * time.Second
	// applyWindow is how long after its intent a configuration whose outcome isn't known may still arrive, or the machine
	// still be about to leave maintenance mode. Longer than applyTimeout, for clocks that differ and stored whole seconds.
	applyWindow = 30 * time.Second
)

// stepMaintenance decides what a machine in maintenance mode needs: its first configuration, patience, or, if it ran
// before, to be provisioned again.
func (v *visit) stepMaintenance(ctx context.Context, found *sighting) error {
	if v.m.Spec.Origin == v1alpha1.MachineAdopted {
		v.block(v1alpha1.ReasonWiped, fmt.Sprintf("a machine answers in maintenance mode at %s, but this one was adopted while it ran; remove it and approve what is discovered", found.address), pollSlow)
		return nil
	}
	record := v.m.Status.Provisioning
	switch {
	case record == nil || record.AppliedAt == nil:
		return v.configure(ctx, found)
	case record.ConvergedAt != nil:
		return v.stepWiped(ctx, found)
	case record.Fingerprint == string(found.probe.Fingerprint):
		// The same certificate is the same boot: it took its configuration and is about to leave maintenance mode.
		v.m.Status.Phase = v1alpha1.PhaseConfiguring
		setFalse(v.m, v1alpha1.ConditionReady, reasonLeavingMaintenance, fmt.Sprintf("the machine at %s took its configuration and is about to leave maintenance mode", found.address))
		v.after = pollFast
		return nil
	default:
		// It came back in maintenance mode before it was installed: the configuration was in memory only. Whether this is
		// the machine is to be shown by its certificate again.
		return v.configure(ctx, found)
	}
}

// configure gives the machine at the address its configuration, if everything that was approved still holds.
func (v *visit) configure(ctx context.Context, found *sighting) error {
	v.m.Status.Stage = v1alpha1.StageMaintenance
	if _, held := v.m.Annotations[v1alpha1.HoldApplyAnnotation]; held {
		v.block(v1alpha1.ReasonHeld, fmt.Sprintf("the annotation %s holds the configuration back; remove it to go on", v1alpha1.HoldApplyAnnotation), pollSlow)
		return nil
	}
	if !v.trust(found) || !v.holdsSlot() {
		return nil
	}
	if wait := v.undecided(); wait > 0 {
		v.m.Status.Phase = v1alpha1.PhaseConfiguring
		setFalse(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplying, "finding out whether the configuration that was being sent has arrived")
		v.after = wait
		return nil
	}
	bundle, err := v.bundle(ctx)
	if err != nil {
		return v.secretsFailed(err)
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	if why := v.conflicts(all); why != "" {
		v.block(v1alpha1.ReasonConflict, why, pollWaiting)
		return nil
	}
	if name := operationOn(v.cluster); name != "" && v.m.Spec.Role == v1alpha1.RoleControlPlane {
		v.block(v1alpha1.ReasonWaitingForTurn, waitsForOperation(name), pollWaiting)
		return nil
	}
	ok, reason, message := v.turns.claim(v.m, v.cluster, all, v.now)
	if !ok {
		v.block(reason, message, pollWaiting)
		return nil
	}
	if err := v.send(ctx, found, bundle); err != nil || !sent(v.m) {
		v.turns.release(v.m.UID)
		return err
	}
	return nil
}

// trust checks the certificate that answered against what was approved.
func (v *visit) trust(found *sighting) bool {
	reason, ok := trusted(v.m, found.probe.Fingerprint)
	if !ok {
		v.distrust(found.probe.Fingerprint)
		return false
	}
	setTrue(v.m, v1alpha1.ConditionFingerprintTrusted, reason, fmt.Sprintf("the machine presents maintenance certificate %s, as expected", found.probe.Fingerprint))
	return true
}

func (v *visit) distrust(seen talos.Fingerprint) {
	message := fingerprintChanged(v.m, seen)
	if condition := find(v.m, v1alpha1.ConditionFingerprintTrusted); condition == nil || condition.Message != message {
		v.tell(corev1.EventTypeWarning, v1alpha1.ReasonFingerprintChanged, "%s", message)
	}
	setFalse(v.m, v1alpha1.ConditionFingerprintTrusted, v1alpha1.ReasonFingerprintChanged, message)
	v.block(v1alpha1.ReasonFingerprintChanged, message, pollSlow)
}

// holdsSlot checks that a control plane passed the gate: its place is in the cluster's status, where only the API server
// writes.
func (v *visit) holdsSlot() bool {
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		return true
	}
	held := slices.ContainsFunc(v.cluster.Status.ControlPlaneSlots, func(slot v1alpha1.ControlPlaneSlot) bool { return slot.MachineUID == v.m.UID })
	if !held {
		v.block(reasonSlotMissing, fmt.Sprintf("the machine holds no control-plane slot of cluster %s (status.controlPlaneSlots); nothing is sent to it. If this stays, remove the machine and approve it again", v.cluster.Name), pollWaiting)
	}
	return held
}

// undecided is how long to wait until a configuration whose outcome isn't known can't arrive any more.
func (v *visit) undecided() time.Duration {
	record := v.m.Status.Provisioning
	if record == nil || record.IntendedAt == nil || record.AppliedAt != nil {
		return 0
	}
	return max(0, record.IntendedAt.Add(applyWindow).Sub(v.now))
}

// bundle reads the secrets anew, and only a bundle that the cluster has remembered is used.
func (v *visit) bundle(ctx context.Context) (*secretsbundle.Bundle, error) {
	bundle, err := v.Bundles.LoadFor(ctx, v.cluster)
	if err != nil {
		return nil, err
	}
	if v.cluster.Status.SecretsBundleHash == "" {
		return nil, fmt.Errorf("%w: cluster %s has not taken note of it yet", secretsbundle.ErrMissing, v.cluster.Name)
	}
	return bundle, nil
}

// conflicts tells which other machine, or living Node, has this machine's hostname or address.
func (v *visit) conflicts(all []*v1alpha1.TalosMachine) string {
	if why := conflict(v.m, all); why != "" {
		return why
	}
	if v.m.Spec.Hostname == "" || v.m.Status.SettledVersions != nil {
		return ""
	}
	node, err := v.nodes.ForMachine(v.m.Spec.Hostname, nil)
	if err != nil || node == nil {
		return ""
	}
	if ready, _ := kube.NodeReady(node); ready {
		return fmt.Sprintf("a Node named %s lives already, while this machine is in maintenance mode; approve it with another hostname, or remove that Node's machine", node.Name)
	}
	return ""
}

// send reads the machine over the connection that is then written to, writes down what is about to happen, and sends the
// configuration.
func (v *visit) send(ctx context.Context, found *sighting, bundle *secretsbundle.Bundle) error {
	node, err := v.Dialer.DialMaintenance(ctx, found.address, found.probe.Fingerprint)
	var mismatch *talos.FingerprintError
	if errors.As(err, &mismatch) {
		v.distrust(mismatch.Got)
		return nil
	}
	if err != nil {
		v.block(v1alpha1.ReasonUnreachable, err.Error(), pollWaiting)
		return nil
	}
	defer func() { _ = node.Close() }()
	wanted, ok := v.prepare(ctx, found, node, bundle)
	if !ok {
		return nil
	}
	if err := v.remember(ctx, wanted, *v.m.Status.SettledVersions); err != nil {
		return err
	}
	v.intend(found, wanted.hash)
	deadline := v.Clock.Now().Add(applyTimeout)
	if err := v.save(ctx); err != nil {
		return err
	}
	// What was begun is finished, also if the controller is being ended.
	sending, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	_, err = node.ApplyConfiguration(sending, wanted.text, talos.ApplyAuto)
	countSent(err)
	v.told = true
	v.outcome(wanted.hash, err)
	return nil
}

// prepare checks on the open connection that it is the approved machine and renders its configuration.
func (v *visit) prepare(ctx context.Context, found *sighting, node talos.MaintenanceNode, bundle *secretsbundle.Bundle) (*rendering, bool) {
	who, err := node.Identity(ctx)
	if err != nil {
		v.block(v1alpha1.ReasonUnreachable, err.Error(), pollWaiting)
		return nil, false
	}
	if !same(v.m.Spec.Identity, who) {
		v.otherMachine(fmt.Sprintf("another machine answers at %s: %s; nothing was sent to it", found.address, describeIdentity(who)))
		return nil, false
	}
	facts, err := node.Facts(ctx)
	if err != nil {
		v.block(v1alpha1.ReasonUnreachable, err.Error(), pollWaiting)
		return nil, false
	}
	if facts.Stage.Stage != v1alpha1.StageMaintenance {
		v.block(v1alpha1.ReasonApplying, fmt.Sprintf("the machine is %s, not in maintenance mode", facts.Stage.Stage), pollFast)
		return nil, false
	}
	versions, ok := v.settleOn(ctx, facts.SchematicID)
	if !ok {
		return nil, false
	}
	in := machineconfig.Inputs{Bundle: bundle.Talos(), Facts: machineconfig.Facts{
		MaintenanceVersion: facts.TalosVersion, Inventory: facts.Inventory, Versions: versions,
	}}
	versions.ConfigContract = machineconfig.ContractOf(in.Facts)
	wanted, fault, err := v.render(ctx, in)
	if err != nil {
		v.block(v1alpha1.ReasonRenderFailed, err.Error()+"; trying again", pollWaiting)
		return nil, false
	}
	if fault != nil {
		v.renderFailed(fault)
		return nil, false
	}
	v.config().Patches = wanted.inputs()
	v.config().MaskedFields = machineconfig.MasksOf(wanted.patches).Texts()
	v.m.Status.SettledVersions = &versions
	v.m.Status.TalosVersion = facts.TalosVersion
	v.m.Status.SchematicID = facts.SchematicID
	v.m.Status.Inventory = facts.Inventory
	return wanted, true
}

func (v *visit) renderFailed(err error) {
	reason := renderReason(err)
	if condition := find(v.m, v1alpha1.ConditionConfigApplied); condition == nil || condition.Reason != reason {
		v.tell(corev1.EventTypeWarning, reason, "%s", err)
	}
	v.block(reason, err.Error()+"; nothing was sent", pollSlow)
}

// intend writes down what is about to be sent. It is saved before anything is.
func (v *visit) intend(found *sighting, hash string) {
	attempts := int32(1)
	if v.m.Status.Provisioning != nil {
		attempts = v.m.Status.Provisioning.Attempts + 1
	}
	v.m.Status.Provisioning = &v1alpha1.ProvisioningStatus{
		Fingerprint: string(found.probe.Fingerprint),
		ConfigHash:  hash,
		Address:     found.address.String(),
		IntendedAt:  v.timestamp(),
		Attempts:    attempts,
	}
	v.config().RenderedHash = hash
	v.m.Status.Phase = v1alpha1.PhaseConfiguring
	setFalse(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplying, fmt.Sprintf("sending the configuration to %s", found.address))
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonApplying, "the machine is being configured")
}

// outcome writes down what is known of an apply. When nothing is known, the record stays as it is, and the machine will
// tell.
func (v *visit) outcome(hash string, err error) {
	if err == nil {
		v.applied(hash)
		v.after = pollFast
		return
	}
	refused := talos.IsRefusal(err)
	if !refused && !talos.IsNotSent(err) {
		setFalse(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplying, err.Error()+"; looking at the machine to find out")
		v.after = pollFast
		return
	}
	// It is certain that the machine doesn't have it: the pin is kept, the intent is taken back.
	v.m.Status.Provisioning.IntendedAt = nil
	if v.m.Status.Provisioning.Attempts == 1 {
		v.m.Status.SettledVersions = nil
	}
	v.m.Status.Phase = v1alpha1.PhaseApproved
	if !refused {
		v.block(v1alpha1.ReasonUnreachable, err.Error(), pollWaiting)
		return
	}
	v.m.Status.Phase = v1alpha1.PhaseFailed
	v.tell(corev1.EventTypeWarning, v1alpha1.ReasonRefusedByMachine, "%s", err)
	v.block(v1alpha1.ReasonRefusedByMachine, err.Error()+"; change what was decided, by approving the machine again", pollRefused)
}

// applied writes down that the machine has its configuration.
func (v *visit) applied(hash string) {
	record := v.m.Status.Provisioning
	record.AppliedAt = v.timestamp()
	v.config().AppliedHash = hash
	message := fmt.Sprintf("the machine at %s took its configuration", record.Address)
	setTrue(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplied, message)
	v.tell(corev1.EventTypeNormal, v1alpha1.ReasonApplied, "%s", message)
}

func (v *visit) config() *v1alpha1.MachineConfigStatus {
	if v.m.Status.Config == nil {
		v.m.Status.Config = &v1alpha1.MachineConfigStatus{}
	}
	return v.m.Status.Config
}
