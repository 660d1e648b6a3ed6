// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// drainPatience is how long a Node's pods are expected to take to go. What takes longer needs a person; it is tried on,
// and nothing is evicted past a PodDisruptionBudget.
const drainPatience = v1alpha1.DefaultDrainTimeout

// Drainer cordons, drains and uncordons Nodes.
type Drainer interface {
	Cordon(ctx context.Context, node string, by types.UID) (byUs bool, err error)
	Drain(ctx context.Context, node string, options drain.Options) (drain.Result, error)
	Uncordon(ctx context.Context, node string, by types.UID) error
}

// undrained says why the machine goes without its Node being drained; empty if it is to be.
func (v *visit) undrained() string {
	removal := v.m.Spec.Removal
	switch {
	case v.destroyed():
		return "the whole cluster is being destroyed"
	case removal != nil && removal.Force:
		return "spec.removal.force was set by " + removal.By
	case removal != nil && removal.SkipDrain:
		return "spec.removal.skipDrain was set by " + removal.By
	}
	return ""
}

// emptyNode cordons and drains the machine's Node, in one bounded pass at each visit. A control plane that can't leave
// etcd keeps its pods. What becomes of the disks is on record before the first pod goes.
func (v *visit) emptyNode(ctx context.Context, found *sighting) (empty bool, err error) {
	record, name := v.removal(), v.m.Status.NodeName
	if record.DrainedAt != nil {
		return true, nil
	}
	skips := v.undrained()
	if skips == "" && name == "" {
		skips = "the machine has no Node"
	}
	if skips != "" {
		return v.emptied(ctx, "it was not drained: "+skips)
	}
	d, why, err := v.plan(ctx, found)
	if err != nil {
		return false, err
	}
	if why != "" {
		v.removing(reasonEtcdUnhealthy, why, pollWaiting)
		return false, nil
	}
	why = v.unsaved(ctx, d.reader(found.node))
	d.close()
	if why != "" {
		v.removing(reasonNoSnapshot, why, pollSlow)
		return false, nil
	}
	if record.DrainStartedAt == nil {
		record.DrainStartedAt = v.timestamp()
		v.tell(corev1.EventTypeNormal, reasonRemoving, "Node %s is drained, and then the machine is wiped: %s", name, machineconfig.DescribeFates(record.Disks))
		v.draining("its pods are asked to go")
		if err := v.save(ctx); err != nil {
			return false, err
		}
	}
	switch _, err := v.Drainer.Cordon(ctx, name, v.m.UID); {
	case apierrors.IsNotFound(err):
		return v.emptied(ctx, fmt.Sprintf("there is no Node %s any more", name))
	case err != nil:
		v.draining(err.Error())
		return false, nil
	}
	result, err := v.Drainer.Drain(ctx, name, drain.Options{Gone: true})
	switch {
	case err != nil:
		v.draining(err.Error())
	case result.Done && result.Message() == "":
		return v.emptied(ctx, fmt.Sprintf("Node %s is drained", name))
	case result.Done:
		return v.emptied(ctx, fmt.Sprintf("Node %s is drained; %s", name, result.Message()))
	default:
		v.draining(result.Message())
	}
	return false, nil
}

// emptied records that nothing is waited for on the Node.
func (v *visit) emptied(ctx context.Context, message string) (bool, error) {
	v.removal().DrainedAt = v.timestamp()
	setTrue(v.m, v1alpha1.ConditionDrained, reasonDrained, message)
	v.removing(reasonRemoving, message, pollFast)
	return true, v.save(ctx)
}

// draining says what a drain waits for. After a time, it is somebody's to decide.
func (v *visit) draining(message string) {
	took := v.now.Sub(v.removal().DrainStartedAt.Time)
	if took <= drainPatience {
		setFalse(v.m, v1alpha1.ConditionDrained, reasonDraining, message)
		v.removing(reasonDraining, fmt.Sprintf("Node %s is being drained: %s", v.m.Status.NodeName, message), pollWaiting)
		return
	}
	message += fmt.Sprintf("; that takes longer than %s. It is tried on; to go on without: ichor machine remove %s --skip-drain", drainPatience, v.m.Name)
	if condition := find(v.m, v1alpha1.ConditionDrained); condition == nil || condition.Reason != v1alpha1.ReasonDrainBlocked {
		v.tell(corev1.EventTypeWarning, v1alpha1.ReasonDrainBlocked, "Node %s %s", v.m.Status.NodeName, message)
	}
	setFalse(v.m, v1alpha1.ConditionDrained, v1alpha1.ReasonDrainBlocked, message)
	v.removing(v1alpha1.ReasonDrainBlocked, fmt.Sprintf("Node %s can't be drained: %s", v.m.Status.NodeName, message), drainRetry)
}

// drainRetry is how often a drain is tried that takes too long.
const drainRetry = 15 * time.Second
