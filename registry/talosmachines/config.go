// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// Neighbours read what a machine's configuration is made of besides the machine.
type Neighbours struct {
	Cluster func(ctx context.Context, name string) (*ichor.TalosCluster, error)
	Patches func(ctx context.Context) ([]ichor.TalosConfigPatch, error)
}

// ConfigREST is talosmachines/config: what the machine is to have, rendered anew for each request, with every secret
// replaced. The server has no secret to show: it renders with placeholders.
type ConfigREST struct {
	machines   *genericregistry.Store
	neighbours Neighbours
}

var (
	_ rest.GetterWithOptions = &ConfigREST{}
	_ rest.Storage           = &ConfigREST{}
)

// NewConfig builds the subresource.
func (s *Storage) NewConfig(neighbours Neighbours) *ConfigREST {
	return &ConfigREST{machines: s.Machine.Store, neighbours: neighbours}
}

// New returns an empty configuration.
func (*ConfigREST) New() runtime.Object { return &ichor.TalosMachineConfig{} }

// Destroy does nothing: the store belongs to the main resource.
func (*ConfigREST) Destroy() {}

// NewGetOptions are the query parameters.
func (*ConfigREST) NewGetOptions() (runtime.Object, bool, string) {
	return &ichor.TalosMachineConfigOptions{}, false, ""
}

// Get renders the machine's configuration. What can't be rendered is a conflict between decisions: 409, with what is at
// fault.
func (r *ConfigREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	obj, err := r.machines.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	machine := obj.(*ichor.TalosMachine)
	if machine.Spec.Role == "" {
		return nil, apierrors.NewConflict(ichor.Resource("talosmachines"), name, fmt.Errorf("nothing is decided about the machine yet; approve it, or look at what approving it would give with --dry-run=server"))
	}
	cluster, err := r.neighbours.Cluster(ctx, machine.Spec.ClusterRef.Name)
	if err != nil {
		return nil, err
	}
	patches, err := r.neighbours.Patches(ctx)
	if err != nil {
		return nil, err
	}
	versioned, err := versionedInputs(cluster, machine, patches)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	wanted, _ := options.(*ichor.TalosMachineConfigOptions)
	view, err := machineconfig.Preview(versioned.cluster, versioned.machine, versioned.patches, wanted != nil && wanted.Provenance)
	if err != nil {
		return nil, apierrors.NewConflict(ichor.Resource("talosmachines"), name, fmt.Errorf("its configuration can't be rendered: %w", err))
	}
	return shown(machine, view), nil
}

// shown is the answer.
func shown(machine *ichor.TalosMachine, view *machineconfig.View) *ichor.TalosMachineConfig {
	config := &ichor.TalosMachineConfig{ObjectMeta: identify(machine), Text: string(view.Text), Warnings: view.Warnings}
	for _, patch := range view.Patches {
		config.Patches = append(config.Patches, ichor.ConfigInput{Name: patch.Name, Generation: patch.Generation})
	}
	for _, origin := range view.Provenance {
		config.Provenance = append(config.Provenance, ichor.FieldProvenance{
			Document: origin.Document, Path: origin.Path, SetBy: string(origin.Kind), Patch: origin.Patch, Overrode: origin.Overrode,
		})
	}
	return config
}

// identify says which machine an answer is about.
func identify(machine *ichor.TalosMachine) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: machine.Name, UID: machine.UID, ResourceVersion: machine.ResourceVersion, CreationTimestamp: machine.CreationTimestamp}
}

type inputs struct {
	cluster *v1alpha1.TalosCluster
	machine *v1alpha1.TalosMachine
	patches []*v1alpha1.TalosConfigPatch
}

// versionedInputs converts what is stored into what rendering reads.
func versionedInputs(cluster *ichor.TalosCluster, machine *ichor.TalosMachine, patches []ichor.TalosConfigPatch) (inputs, error) {
	in := inputs{cluster: &v1alpha1.TalosCluster{}, machine: &v1alpha1.TalosMachine{}}
	// Converting shares memory with what it was given, which is the cache's.
	if err := v1alpha1.Convert_ichor_TalosCluster_To_v1alpha1_TalosCluster(cluster.DeepCopy(), in.cluster, nil); err != nil {
		return in, err
	}
	if err := v1alpha1.Convert_ichor_TalosMachine_To_v1alpha1_TalosMachine(machine.DeepCopy(), in.machine, nil); err != nil {
		return in, err
	}
	for i := range patches {
		patch := &v1alpha1.TalosConfigPatch{}
		if err := v1alpha1.Convert_ichor_TalosConfigPatch_To_v1alpha1_TalosConfigPatch(patches[i].DeepCopy(), patch, nil); err != nil {
			return in, err
		}
		in.patches = append(in.patches, patch)
	}
	return in, nil
}

// DriftREST is talosmachines/drift: in what the machine's running configuration differs from what it is to have, as the
// controller saw it last.
type DriftREST struct {
	machines *genericregistry.Store
}

var (
	_ rest.Getter  = &DriftREST{}
	_ rest.Storage = &DriftREST{}
)

// NewDrift builds the subresource.
func (s *Storage) NewDrift() *DriftREST { return &DriftREST{machines: s.Machine.Store} }

// New returns an empty answer.
func (*DriftREST) New() runtime.Object { return &ichor.TalosMachineDrift{} }

// Destroy does nothing: the store belongs to the main resource.
func (*DriftREST) Destroy() {}

// Get reads it from the machine's status.
func (r *DriftREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.machines.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	machine := obj.(*ichor.TalosMachine)
	drift := &ichor.TalosMachineDrift{ObjectMeta: identify(machine), State: "Unknown", Message: "the running configuration has not been read yet"}
	if config := machine.Status.Config; config != nil {
		drift.Count, drift.Items = config.DriftCount, config.Drift
	}
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionDriftDetected)
	if condition == nil {
		return drift, nil
	}
	drift.Message = condition.Message
	switch {
	case condition.Status == metav1.ConditionTrue:
		drift.State = v1alpha1.ReasonDrifted
	case condition.Status == metav1.ConditionFalse:
		drift.State = condition.Reason
	}
	return drift, nil
}
