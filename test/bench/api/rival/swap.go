// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// swapAttempts bounds how often a claim starts again because somebody else wrote the cluster.
const swapAttempts = 10

// Clusters is how the gate reaches clusters: Get from a quorum, UpdateStatus by compare-and-swap on resourceVersion.
type Clusters interface {
	Get(ctx context.Context, name string) (*v1alpha1.TalosCluster, error)
	UpdateStatus(ctx context.Context, cluster *v1alpha1.TalosCluster) (*v1alpha1.TalosCluster, error)
}

// SwapGate takes a slot in the cluster by compare-and-swap and only then lets the machine through.
//
// That is enough, if slots are removed as Reaper does. The kube-apiserver calls the webhook inside the update of the
// machine, with the version that it compares when it stores (and calls again for another version), so a slot is
// claimed after the version was read on which the write is fenced. Every claim makes a new token; who removes a slot
// reads the token, changes the machine, and removes the slot only if the token is the same. The limit is in the
// cluster's schema, judged in the same key.
//
// It is as quick as one process can be: claims of one process queue at a lock instead of at conflicts, and begin with the
// cluster as the last claim left it, so that a claim is one request.
type SwapGate struct {
	clusters Clusters

	mu   sync.Mutex
	last map[string]*v1alpha1.TalosCluster
}

// NewSwapGate returns the gate.
func NewSwapGate(clusters Clusters) *SwapGate {
	return &SwapGate{clusters: clusters, last: map[string]*v1alpha1.TalosCluster{}}
}

// Admit takes a slot for a control plane.
func (g *SwapGate) Admit(ctx context.Context, machine *v1alpha1.TalosMachine, dryRun bool) error {
	if machine.Spec.Role != v1alpha1.RoleControlPlane {
		return nil
	}
	name := machine.Spec.ClusterRef.Name
	g.mu.Lock()
	defer g.mu.Unlock()
	for attempt := 1; ; attempt++ {
		known := g.last[name]
		cluster, err := known.DeepCopy(), error(nil)
		if cluster == nil {
			if cluster, err = g.clusters.Get(ctx, name); err != nil {
				return fmt.Errorf("read cluster %s: %w", name, err)
			}
		}
		full := claim(cluster, machine)
		if full != nil && known != nil {
			delete(g.last, name) // it may be out of date
			continue
		}
		if full != nil || dryRun {
			return full
		}
		written, err := g.clusters.UpdateStatus(ctx, cluster)
		if err == nil {
			g.last[name] = written
			return nil
		}
		delete(g.last, name)
		if !apierrors.IsConflict(err) || attempt == swapAttempts || ctx.Err() != nil {
			return fmt.Errorf("take a slot in cluster %s: %w", name, err)
		}
	}
}

// claim puts the machine's slot into the cluster, or says that there is none.
func claim(cluster *v1alpha1.TalosCluster, machine *v1alpha1.TalosMachine) error {
	slots := cluster.Status.ControlPlaneSlots
	mine := -1
	for i, slot := range slots {
		switch {
		case slot.MachineUID == machine.UID:
			mine = i
		case slot.Hostname != "" && slot.Hostname == machine.Spec.Hostname:
			return fmt.Errorf("hostname %s is taken by control plane %s", slot.Hostname, slot.Name)
		}
	}
	if mine < 0 {
		if limit := int(cluster.Spec.ControlPlane.Count) + 1; len(slots) >= limit {
			return fmt.Errorf("cluster %s has %d control planes of at most %d", cluster.Name, len(slots), limit)
		}
		slots = append(slots, v1alpha1.ControlPlaneSlot{MachineUID: machine.UID})
		mine = len(slots) - 1
	}
	slots[mine].Name, slots[mine].Hostname = machine.Name, machine.Spec.Hostname
	slots[mine].Token, slots[mine].At = uuid.NewString(), metav1.Now().Rfc3339Copy()
	cluster.Status.ControlPlaneSlots = slots
	cluster.Status.ControlPlanes.Approved, cluster.Status.ControlPlanes.Limit = int32(len(slots)), cluster.Spec.ControlPlane.Count+1
	return nil
}
