// SPDX-License-Identifier: Apache-2.0

package talosconfigpatches

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/registry/verbs"
)

// seer tells what a change of a patch would do. The server renders with placeholders: it holds no secret.
type seer struct {
	cluster  Cluster
	machines func(ctx context.Context) ([]ichor.TalosMachine, error)
	patches  rest.Lister
	checker  verbs.Checker
	// busy bounds how many questions are worked on at a time: rendering is all CPU, and who may only look may ask.
	busy chan struct{}
}

// atATime is how many questions are worked on at a time.
const atATime = 2

// turn waits for a place among those that are worked on; whoever has one gives it back.
func (s *seer) turn(ctx context.Context) (done func(), err error) {
	select {
	case s.busy <- struct{}{}:
		return func() { <-s.busy }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// change is a patch before and after, either of which may be nil, but not both.
type change struct {
	before, after *ichor.TalosConfigPatch
}

func (c change) target() *ichor.PatchTarget {
	if c.after != nil {
		return &c.after.Spec.Target
	}
	return &c.before.Spec.Target
}

// scene is what a change happens in, as rendering reads it.
type scene struct {
	// cluster is nil if there is none of the name.
	cluster  *v1alpha1.TalosCluster
	machines []*v1alpha1.TalosMachine
	patches  []*v1alpha1.TalosConfigPatch
	change   machineconfig.PatchChange
}

// look reads what there is.
func (s *seer) look(ctx context.Context, c change) (*scene, error) {
	name := c.target().ClusterRef.Name
	found := &scene{}
	cluster, err := s.cluster(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, err
	default:
		found.cluster = &v1alpha1.TalosCluster{}
		// Converting shares memory with what it was given, which is the cache's.
		if err := v1alpha1.Convert_ichor_TalosCluster_To_v1alpha1_TalosCluster(cluster.DeepCopy(), found.cluster, nil); err != nil {
			return nil, err
		}
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	for i := range machines {
		if machines[i].Spec.ClusterRef.Name != name || machines[i].Spec.ApprovalState != ichor.ApprovalApproved {
			continue
		}
		machine := &v1alpha1.TalosMachine{}
		if err := v1alpha1.Convert_ichor_TalosMachine_To_v1alpha1_TalosMachine(machines[i].DeepCopy(), machine, nil); err != nil {
			return nil, err
		}
		found.machines = append(found.machines, machine)
	}
	list, err := s.patches.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list patches: %w", err)
	}
	stored := list.(*ichor.TalosConfigPatchList).Items
	for i := range stored {
		patch, err := versioned(&stored[i])
		if err != nil {
			return nil, err
		}
		found.patches = append(found.patches, patch)
	}
	if found.change.Before, err = versioned(c.before); err != nil {
		return nil, err
	}
	found.change.After, err = versioned(c.after)
	return found, err
}

func versioned(patch *ichor.TalosConfigPatch) (*v1alpha1.TalosConfigPatch, error) {
	if patch == nil {
		return nil, nil
	}
	out := &v1alpha1.TalosConfigPatch{}
	err := v1alpha1.Convert_ichor_TalosConfigPatch_To_v1alpha1_TalosConfigPatch(patch.DeepCopy(), out, nil)
	return out, err
}

// foresee tells what the change would do in the scene. Without a cluster there is nothing it could do.
func (s *scene) foresee(ctx context.Context) (*machineconfig.Foresight, error) {
	if s.cluster == nil {
		return &machineconfig.Foresight{}, nil
	}
	return machineconfig.Foresee(ctx, s.cluster, s.machines, s.patches, s.change)
}
