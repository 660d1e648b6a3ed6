// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// passGates waits until the machine may go down, by Ichor's own gates.
func (v *visit) passGates(ctx context.Context) (outcome, error) {
	if still := v.kind().still; still != nil {
		if came, err := still(v, ctx); err != nil || came.needless || came.failed {
			return came, err
		}
	}
	if why, err := v.ownGates(ctx); err != nil || why != "" {
		return outcome{message: why}, err
	}
	return v.opened()
}

// askGates waits for the gates that a person gave the operation. All are asked each time, so that the time of each counts
// from the beginning of the step.
func (v *visit) askGates(ctx context.Context) (outcome, error) {
	occasion := gates.Occasion{Operation: v.op.Name, UID: v.op.UID, Machine: v.m.Name, Attempt: v.op.Status.HandledResumeRequests}
	var closed, late []string
	for _, gate := range v.op.Spec.Gates {
		found, err := v.Gates.Check(ctx, gate, occasion)
		switch {
		case err != nil:
			closed = append(closed, err.Error())
		case found.State == gates.Refused:
			return failed("%s", found.Message)
		case found.State == gates.Waiting && v.lasted(v.record) > gateTimeout(&gate):
			late = append(late, fmt.Sprintf("not open after %s: %s", gateTimeout(&gate), found.Message))
		case found.State == gates.Waiting:
			closed = append(closed, found.Message)
		}
	}
	switch {
	case len(late) > 0:
		return failed("%s", strings.Join(late, "; "))
	case len(closed) > 0:
		return waiting("%s", strings.Join(closed, "; "))
	default:
		return v.opened()
	}
}

// opened is the outcome of gates that are open: they may have taken longer than a window was.
func (v *visit) opened() (outcome, error) {
	if !v.inWindow() {
		return outcome{early: true, message: v.op.Status.Message}, nil
	}
	return done("the gates are open")
}

func gateTimeout(gate *v1alpha1.OperationGate) time.Duration {
	if gate.Timeout != nil {
		return gate.Timeout.Duration
	}
	return 30 * time.Minute
}

// ownGates says why the machine may not go down now. Its peers come from the API itself: what their controller wrote before
// it tells one to leave is seen, and it sees the operation's claim.
func (v *visit) ownGates(ctx context.Context) (string, error) {
	if v.m.Spec.Locked {
		return "spec.locked is true; set it to false, or cancel the operation", nil
	}
	if v.cluster.Spec.Locked {
		return fmt.Sprintf("spec.locked of cluster %s is true; set it to false, or cancel the operation", v.cluster.Name), nil
	}
	peers, err := v.peers(ctx)
	if err != nil {
		return "", err
	}
	if why := disturbed(v.m, peers); why != "" {
		return why, nil
	}
	if v.m.Spec.Role != v1alpha1.RoleControlPlane || v.kind().stays {
		if condition := meta.FindStatusCondition(v.cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy); condition == nil || condition.Status != metav1.ConditionTrue {
			return "etcd isn't known to be healthy", nil
		}
		return "", nil
	}
	return v.quorumWithout(ctx, peers)
}

// peers are the other machines of the cluster, from the API itself.
func (v *visit) peers(ctx context.Context) ([]*v1alpha1.TalosMachine, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	listed, err := v.Client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var peers []*v1alpha1.TalosMachine
	for i := range listed.Items {
		if other := &listed.Items[i]; other.UID != v.m.UID && other.Spec.ClusterRef.Name == v.cluster.Name {
			peers = append(peers, other)
		}
	}
	return peers, nil
}

// disturbed names a machine because of which this one may not go down now. A worker waits for control planes too: with
// them, its pods find no new place.
func disturbed(m *v1alpha1.TalosMachine, peers []*v1alpha1.TalosMachine) string {
	for _, other := range peers {
		if other.Spec.Role != v1alpha1.RoleControlPlane || other.Spec.ApprovalState != v1alpha1.ApprovalApproved {
			continue
		}
		reset := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionReset)
		switch applied := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionConfigApplied); {
		case other.DeletionTimestamp != nil && reset != nil && reset.Status != metav1.ConditionFalse:
			return fmt.Sprintf("control plane %s is being removed", other.Name)
		case applied != nil && applied.Status == metav1.ConditionFalse && applied.Reason == v1alpha1.ReasonApplying:
			return fmt.Sprintf("control plane %s is being configured", other.Name)
		case !isReady(other) && isConfigured(other) && other.DeletionTimestamp == nil:
			return fmt.Sprintf("control plane %s is not Ready: %s", other.Name, notReady(other))
		}
	}
	return ""
}

func isConfigured(m *v1alpha1.TalosMachine) bool {
	return m.Spec.Origin == v1alpha1.MachineAdopted || m.Status.Provisioning != nil && m.Status.Provisioning.IntendedAt != nil
}

func notReady(m *v1alpha1.TalosMachine) string {
	if condition := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); condition != nil {
		return condition.Message
	}
	return "it was not looked at yet"
}
