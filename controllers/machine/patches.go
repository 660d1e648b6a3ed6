// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// PatchValues reads the values that patches take from Secrets.
type PatchValues interface {
	// Value returns one value, or *machineconfig.ValueError where it can't be had until a person mends it.
	Value(ctx context.Context, ref v1alpha1.SecretKeyReference) (string, error)
}

// recompileAfter is how long a patch with values from Secrets is used before they are read again.
const recompileAfter = 30 * time.Second

// library holds patches that are ready to be merged: a thousand machines have the same few.
type library struct {
	mu       sync.Mutex
	compiled map[types.UID]*compiled
}

type compiled struct {
	generation int64
	cilium     bool
	at         time.Time
	patch      *machineconfig.Patch
	refusal    *machineconfig.PatchError
}

func newLibrary() *library { return &library{compiled: map[types.UID]*compiled{}} }

// forget drops a patch that is gone.
func (l *library) forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.compiled, uid)
}

// get makes a patch ready, or says with *machineconfig.PatchError why no machine can have it.
func (l *library) get(ctx context.Context, patch *v1alpha1.TalosConfigPatch, cluster *v1alpha1.TalosCluster, values PatchValues, now time.Time) (*machineconfig.Patch, error) {
	cilium := cluster.Spec.CNI.Cilium != nil
	l.mu.Lock()
	have := l.compiled[patch.UID]
	l.mu.Unlock()
	if have == nil || have.generation != patch.Generation || have.cilium != cilium || len(patch.Spec.SecretValues) > 0 && now.Sub(have.at) > recompileAfter {
		made, err := compile(ctx, patch, cilium, values)
		if err != nil {
			return nil, err
		}
		made.at = now
		l.mu.Lock()
		l.compiled[patch.UID] = made
		l.mu.Unlock()
		have = made
	}
	if have.refusal != nil {
		return nil, have.refusal
	}
	return have.patch, nil
}

// compile makes a patch ready. Errors that pass by themselves are returned, others are kept.
func compile(ctx context.Context, patch *v1alpha1.TalosConfigPatch, cilium bool, values PatchValues) (*compiled, error) {
	made := &compiled{generation: patch.Generation, cilium: cilium}
	var passing error
	ready, err := machineconfig.Compile(patch, cilium, func(ref v1alpha1.SecretKeyReference) (string, error) {
		value, err := values.Value(ctx, ref)
		var lasting *machineconfig.ValueError
		if err != nil && !errors.As(err, &lasting) {
			passing = err
		}
		return value, err
	})
	if passing != nil {
		return nil, fmt.Errorf("patch %s: %w", patch.Name, passing)
	}
	if err != nil && !errors.As(err, &made.refusal) {
		return nil, err
	}
	made.patch = ready
	return made, nil
}

// patchesFor are the machine's patches, ready, in their order, and the objects that they were made of.
func (v *visit) patchesFor(ctx context.Context) (ready []*machineconfig.Patch, objects []v1alpha1.ObjectGeneration, err error) {
	all, err := v.patches.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list patches: %w", err)
	}
	for _, patch := range machineconfig.PatchesFor(v.m, all) {
		made, err := v.library.get(ctx, patch, v.cluster, v.Values, v.now)
		if err != nil {
			return nil, nil, err
		}
		ready = append(ready, made)
		objects = append(objects, v1alpha1.ObjectGeneration{Name: patch.Name, UID: patch.UID, Generation: patch.Generation})
	}
	return ready, objects, nil
}

// rendering is what a machine should have.
type rendering struct {
	text    []byte
	hash    string
	patches []*machineconfig.Patch
	// objects are what the patches were made of.
	objects []v1alpha1.ObjectGeneration
}

// inputs write down which patches are in it.
func (r *rendering) inputs() []v1alpha1.ConfigInput {
	var inputs []v1alpha1.ConfigInput
	for _, patch := range r.patches {
		inputs = append(inputs, v1alpha1.ConfigInput{Name: patch.Name, Generation: patch.Generation})
	}
	return inputs
}

// render makes what the machine should have. A fault stays until a person mends it, an error passes by itself. A patch
// that the machine can't have is written into its status.
func (v *visit) render(ctx context.Context, in machineconfig.Inputs) (wanted *rendering, fault, err error) {
	patches, objects, err := v.patchesFor(ctx)
	var refusal *machineconfig.PatchError
	if err != nil && !errors.As(err, &refusal) {
		return nil, nil, err
	}
	fault = err
	var text []byte
	if fault == nil {
		in.Cluster, in.Machine, in.Patches = v.cluster, v.m, patches
		text, fault = machineconfig.Render(in)
	}
	v.config().Refused = nil
	if fault == nil {
		return &rendering{text: text, hash: machineconfig.Hash(text), patches: patches, objects: objects}, nil, nil
	}
	if errors.As(fault, &refusal) {
		v.config().Refused = &v1alpha1.RefusedPatch{Name: refusal.Patch, Path: refusal.Path, Reason: refusal.Reason}
	}
	return nil, fault, nil
}

// renderReason is the reason of a condition for what can't be rendered.
func renderReason(err error) string {
	var disk *machineconfig.DiskError
	var patch *machineconfig.PatchError
	switch {
	case errors.As(err, &disk):
		return v1alpha1.ReasonDiskMissing
	case errors.As(err, &patch):
		return v1alpha1.ReasonPatchRefused
	default:
		return v1alpha1.ReasonRenderFailed
	}
}

// enqueuePatch brings a look at the machines that a patch is, or was, for.
func (c *Controller) enqueuePatch(object any) { c.enqueueTargets(patchOf(object)) }

// enqueuePatchGone also forgets the patch.
func (c *Controller) enqueuePatchGone(object any) {
	if patch := patchOf(object); patch != nil {
		c.library.forget(patch.UID)
		c.enqueueTargets(patch)
	}
}

// enqueuePatchChanged leaves out updates of nothing but its status.
func (c *Controller) enqueuePatchChanged(before, now any) {
	was, is := patchOf(before), patchOf(now)
	if was != nil && is != nil && was.UID == is.UID && was.Generation == is.Generation && was.DeletionTimestamp.Equal(is.DeletionTimestamp) {
		return
	}
	c.enqueueTargets(was)
	c.enqueueTargets(is)
}

func (c *Controller) enqueueTargets(patch *v1alpha1.TalosConfigPatch) {
	if patch == nil {
		return
	}
	all, err := c.machines.List(labels.Everything())
	if err != nil {
		return
	}
	var concerned []*v1alpha1.TalosMachine
	for _, m := range all {
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && machineconfig.Targets(&patch.Spec.Target, m) {
			concerned = append(concerned, m)
		}
	}
	c.enqueueSpread(concerned)
}

func patchOf(object any) *v1alpha1.TalosConfigPatch {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	patch, _ := object.(*v1alpha1.TalosConfigPatch)
	return patch
}
