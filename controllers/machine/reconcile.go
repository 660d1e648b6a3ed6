// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
)

// Reconcile takes one machine a step further, and says when to look again.
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	cached, err := c.machines.Get(name)
	if apierrors.IsNotFound(err) {
		lastSeen.DeleteLabelValues(name)
		c.looks.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read machine %s: %w", name, err)
	}
	v := c.visit(cached)
	if err := v.step(ctx); err != nil {
		return 0, err
	}
	// What was found out is kept, also if the controller is being ended.
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	if err := v.save(saving); err != nil {
		return 0, err
	}
	if queues(v.m) && !waitingForTurn(v.m) {
		c.enqueueNext(v.m) // something else keeps it, so it leaves its turn to the next one
	}
	return v.paced(), nil
}

// saveTimeout bounds the writing of a status.
const saveTimeout = 15 * time.Second

// step decides what kind of machine it is.
func (v *visit) step(ctx context.Context) error {
	switch {
	case v.m.DeletionTimestamp != nil:
		return v.remove(ctx)
	case v.m.Spec.ApprovalState == v1alpha1.ApprovalRejected:
		v.m.Status.Phase = v1alpha1.PhaseRejected
		setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonRejected, "the machine was rejected and is left alone; delete the object to have it found again")
		return nil
	case v.m.Spec.ApprovalState != v1alpha1.ApprovalApproved:
		return v.stepPending(ctx)
	default:
		return v.stepApproved(ctx)
	}
}

// stepPending leaves a discovered machine to the search for machines; an adopted one is read, so that a person sees what
// he approves.
func (v *visit) stepPending(ctx context.Context) error {
	v.m.Status.Phase = v1alpha1.PhasePending
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForApproval, "a person has to approve the machine first")
	if v.m.Spec.Origin != v1alpha1.MachineAdopted {
		return nil
	}
	if !v.findCluster() {
		return nil
	}
	found, err := v.look(ctx)
	if err != nil {
		return v.secretsFailed(err)
	}
	defer found.close()
	v.note(found)
	if found.kind == sawConfigured {
		v.describe(found.facts)
	}
	v.after = pollReady
	return nil
}

func (v *visit) stepApproved(ctx context.Context) error {
	if v.m.Status.Phase == "" || v.m.Status.Phase == v1alpha1.PhasePending {
		v.m.Status.Phase = v1alpha1.PhaseApproved
	}
	if !v.findCluster() {
		return nil
	}
	if endsWithMachines(v.cluster) {
		return v.stepEnding(ctx)
	}
	if waits, err := v.waitsForTurn(); err != nil || waits {
		return err
	}
	if waits, err := v.waitsForLiveTurn(); err != nil || waits {
		return err
	}
	v.looks.note(v.m.Name, v.now)
	found, err := v.look(ctx)
	if err != nil {
		return v.secretsFailed(err)
	}
	defer found.close()
	v.note(found)
	switch found.kind {
	case sawConfigured:
		if !sent(v.m) && v.m.Spec.Origin != v1alpha1.MachineAdopted {
			if !v.recover(ctx, found) {
				return nil
			}
		}
		return v.follow(ctx, found)
	case sawMaintenance:
		return v.stepMaintenance(ctx, found)
	case sawOther:
		v.otherMachine(found.message)
		return nil
	case sawLocked:
		if !sent(v.m) && v.m.Spec.Origin != v1alpha1.MachineAdopted {
			return v.foreign(found)
		}
		v.absent(found)
		return nil
	default:
		v.absent(found)
		return nil
	}
}

// findCluster finds the machine's cluster and checks that it is the one that the machine was approved into.
func (v *visit) findCluster() bool {
	name := v.m.Spec.ClusterRef.Name
	cluster, err := v.clusters.Get(name)
	if err != nil {
		v.block(v1alpha1.ReasonClusterMissing, fmt.Sprintf("there is no TalosCluster %s; create it, or, to let the machine go as it is, set spec.deletionPolicy to Orphan and delete this object", name), pollSlow)
		return false
	}
	if approval := v.m.Spec.Approval; approval != nil && approval.ClusterUID != "" && approval.ClusterUID != cluster.UID {
		v.block(v1alpha1.ReasonClusterReplaced, fmt.Sprintf("the machine was approved into another TalosCluster of the name %s, which is gone; nothing is done to it. Set spec.deletionPolicy to Orphan and delete this object, reset the machine by hand, and approve it into this one when it is found", name), pollSlow)
		return false
	}
	v.cluster = cluster
	return true
}

// recover goes on with a machine that runs with this cluster's secrets while its object knows of no configuration: the
// object was restored from before it was sent. What it runs is taken as what was sent, if it has the approved role.
func (v *visit) recover(ctx context.Context, found *sighting) bool {
	running, err := found.node.RunningConfiguration(ctx)
	if err != nil {
		v.unreadable(err)
		return false
	}
	role, err := machineconfig.Role(running)
	if err != nil {
		v.block(reasonOtherConfiguration, fmt.Sprintf("the machine at %s runs a configuration that Ichor has no record of: %s", found.address, err), pollSlow)
		return false
	}
	if role != v.m.Spec.Role {
		v.block(reasonOtherConfiguration, fmt.Sprintf("the machine at %s runs as %s with a configuration that Ichor has no record of, but was approved as %s; reset it to have it provisioned, or remove it and approve it as what it is", found.address, role, v.m.Spec.Role), pollSlow)
		return false
	}
	v.m.Status.Provisioning = &v1alpha1.ProvisioningStatus{
		Fingerprint: pinned(v.m),
		Address:     found.address.String(),
		IntendedAt:  v.timestamp(),
	}
	return true
}

// foreign stops at a machine that was approved in maintenance mode and has a configuration that Ichor didn't send.
func (v *visit) foreign(found *sighting) error {
	message := fmt.Sprintf("the machine at %s has a configuration that Ichor didn't send; reset it to have it provisioned, or enter it as an adopted machine", found.address)
	v.block(reasonOtherConfiguration, message, pollSlow)
	return nil
}

// otherMachine stops at another machine that answers where this one should. Nothing was sent to it.
func (v *visit) otherMachine(message string) {
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonOtherMachine, message)
	if !isTrue(v.m, v1alpha1.ConditionConfigApplied) {
		setFalse(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonOtherMachine, message)
	}
	v.after = pollSlow
}

// secretsFailed turns what is wrong with the secrets bundle into a condition. Other errors are the API's own, and tried
// again.
func (v *visit) secretsFailed(err error) error {
	reason := v1alpha1.ReasonSecretsInvalid
	switch {
	case errors.Is(err, secretsbundle.ErrMissing):
		reason = v1alpha1.ReasonSecretsMissing
	case errors.Is(err, secretsbundle.ErrInvalid), errors.Is(err, secretsbundle.ErrChanged):
	default:
		return err
	}
	message := fmt.Sprintf("%s; nothing is applied until it is there", err)
	setFalse(v.m, v1alpha1.ConditionReady, reason, message)
	if !isTrue(v.m, v1alpha1.ConditionConfigApplied) {
		setFalse(v.m, v1alpha1.ConditionConfigApplied, reason, message)
	}
	v.after = pollSlow
	return nil
}
