// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// conditionReset is True from when the machine accepted to be wiped.
const conditionReset = "Reset"

// resetSilence is how long a machine that was reset may be silent before it is taken as gone: it comes back in
// maintenance mode, perhaps at another address, where it is found as a new machine.
const resetSilence = 5 * time.Minute

// resetter is a node that can be wiped.
type resetter interface {
	// Reset wipes the machine's state and configuration and reboots it, user disks excepted. Gracefully means that it
	// drains its Node and leaves etcd first, and isn't wiped if it can't.
	Reset(ctx context.Context, graceful bool) error
}

// remove lets a machine go: at once if nothing was ever sent to it or it is to be left as it is, else when it was wiped.
func (v *visit) remove(ctx context.Context) error {
	if !slices.Contains(v.m.Finalizers, v1alpha1.MachineFinalizer) {
		return nil
	}
	adopted := v.m.Spec.Origin == v1alpha1.MachineAdopted
	untouched := v.m.Spec.ApprovalState != v1alpha1.ApprovalApproved || !adopted && !sent(v.m)
	if untouched || v.m.Spec.DeletionPolicy == v1alpha1.DeletionOrphan {
		return v.letGo(ctx)
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

// reset wipes a machine that runs, if that leaves etcd with a quorum.
func (v *visit) reset(ctx context.Context, found *sighting) error {
	v.describe(found.facts)
	if stage := found.facts.Stage.Stage; isTrue(v.m, conditionReset) && stage != v1alpha1.StageRunning {
		v.removing(reasonReset, fmt.Sprintf("the machine is being wiped (%s)", stage), pollFast)
		return nil
	}
	if why, err := v.keepsQuorum(ctx, found); err != nil || why != "" {
		v.removing(reasonEtcdUnhealthy, why, pollWaiting)
		return err
	}
	node, ok := found.node.(resetter)
	if !ok {
		return errors.New("the connection to the machine can't reset it")
	}
	if err := node.Reset(ctx, true); err != nil {
		v.removing(v1alpha1.ReasonRefusedByMachine, fmt.Sprintf("the machine refused to be wiped: %s", err), pollSlow)
		return nil
	}
	v.tell(corev1.EventTypeNormal, reasonReset, "the machine is being wiped: its Node is drained, and the system disk erased; user disks are kept")
	setTrue(v.m, conditionReset, reasonReset, "the machine accepted to be wiped")
	v.removing(reasonReset, "the machine is being wiped", pollFast)
	return nil
}

func (v *visit) removing(reason, message string, after time.Duration) {
	setFalse(v.m, v1alpha1.ConditionReady, reason, "being removed: "+message)
	v.after = after
}

// keepsQuorum tells why a control plane can't leave etcd now: the healthy voters that stay have to be a quorum of the
// voters that stay.
func (v *visit) keepsQuorum(ctx context.Context, found *sighting) (string, error) {
	if v.m.Spec.Role != v1alpha1.RoleControlPlane {
		return "", nil
	}
	members, err := found.node.EtcdMembers(ctx)
	if err != nil {
		return "etcd can't be asked for its members: " + err.Error(), nil
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return "", fmt.Errorf("list machines: %w", err)
	}
	return quorumWithout(v.m, found.facts.Hostname, members, all), nil
}

func quorumWithout(m *v1alpha1.TalosMachine, hostname string, members []talos.EtcdMember, all []*v1alpha1.TalosMachine) string {
	ready := map[string]bool{}
	for _, other := range all {
		if other.UID == m.UID || other.Spec.Role != v1alpha1.RoleControlPlane || other.Spec.ClusterRef.Name != m.Spec.ClusterRef.Name {
			continue
		}
		if other.DeletionTimestamp != nil && isTrue(other, conditionReset) {
			return fmt.Sprintf("control planes leave one at a time, and machine %s is leaving", other.Name)
		}
		if isTrue(other, v1alpha1.ConditionReady) {
			ready[other.Status.Hostname] = true
		}
	}
	voters, healthy := 0, 0
	for _, member := range members {
		if member.Learner {
			return fmt.Sprintf("etcd member %s is a learner; nothing leaves until it votes", member.Hostname)
		}
		if member.Hostname == hostname {
			continue
		}
		voters++
		if ready[member.Hostname] {
			healthy++
		}
	}
	if quorum := voters/2 + 1; voters == 0 || healthy < quorum {
		return fmt.Sprintf("%d of the %d etcd members that would stay are Ready, %d are needed; bring them up first, or set spec.deletionPolicy to Orphan to leave the machine as it is", healthy, voters, quorum)
	}
	return ""
}

// removeReset ends the removal of a machine that is back in maintenance mode. It is recognised by a connection that
// nothing is written over.
func (v *visit) removeReset(ctx context.Context, found *sighting) error {
	facts, err := v.readMaintenance(ctx, found)
	if err != nil {
		v.removing(v1alpha1.ReasonUnreachable, err.Error(), pollWaiting)
		return nil
	}
	if !same(v.m.Spec.Identity, facts.Identity) {
		return v.removeSilent(ctx, found)
	}
	return v.forget(ctx)
}

// removeSilent waits for a machine that doesn't answer; one that accepted to be wiped isn't waited for for ever.
func (v *visit) removeSilent(ctx context.Context, found *sighting) error {
	if condition := find(v.m, conditionReset); condition != nil && condition.Status == metav1.ConditionTrue {
		if v.now.Sub(condition.LastTransitionTime.Time) <= resetSilence {
			v.removing(reasonReset, "the machine was wiped and is expected back in maintenance mode", pollFast)
			return nil
		}
		v.tell(corev1.EventTypeWarning, reasonReset, "the machine accepted to be wiped and was not seen since; it is found again where it comes back")
		return v.forget(ctx)
	}
	v.removing(v1alpha1.ReasonUnreachable, "the machine doesn't answer, so it can't be wiped: "+found.message+"; to give it up as it is, set spec.deletionPolicy to Orphan", pollWaiting)
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
