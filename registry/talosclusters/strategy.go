// SPDX-License-Identifier: Apache-2.0

package talosclusters

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/reset"
	"maesh.dev/ichor/registry/slots"
)

// strategy is what people may do with a TalosCluster through the main resource.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator}
}

// NamespaceScoped is false: clusters belong to no namespace.
func (strategy) NamespaceScoped() bool { return false }

// AllowCreateOnUpdate is false: a PUT doesn't create.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false: a PUT names the version that it was made from.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// GetResetFields are the fields that only subresources write.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Fields("status")
}

// PrepareForCreate makes a cluster of which nothing was observed.
func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	cluster := obj.(*ichor.TalosCluster)
	cluster.Status = ichor.TalosClusterStatus{}
	cluster.Generation = 1
	canonicalizeValues(cluster)
	cluster.Finalizers = reset.Finalizers(cluster.Finalizers, []string{v1alpha1.ClusterFinalizer})
	slots.Count(cluster)
	recordProgress(cluster, nil)
}

// PrepareForUpdate keeps what only subresources write.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	cluster, was := obj.(*ichor.TalosCluster), old.(*ichor.TalosCluster)
	cluster.Status = was.Status
	canonicalizeValues(cluster)
	cluster.Finalizers = reset.Finalizers(cluster.Finalizers, was.Finalizers)
	slots.Count(cluster)
	if !apiequality.Semantic.DeepEqual(cluster.Spec, was.Spec) {
		cluster.Generation = was.Generation + 1
	}
	recordProgress(cluster, was.Status.Conditions)
}

// recordProgress says in the conditions that every kind has where the cluster is now.
func recordProgress(cluster *ichor.TalosCluster, was []metav1.Condition) {
	progress.Record(&cluster.Status.Conditions, was, cluster.Generation, progress.TalosCluster(cluster))
}

// Validate judges a new cluster.
func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	cluster := obj.(*ichor.TalosCluster)
	return append(validation.ValidateOwners(cluster.OwnerReferences, nil), validation.ValidateTalosCluster(cluster)...)
}

// ValidateUpdate judges a change through the main resource. Slots and count are in one object, so lowering the count
// below the held slots is judged against what is stored.
func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	cluster, was := obj.(*ichor.TalosCluster), old.(*ichor.TalosCluster)
	return append(validation.ValidateOwners(cluster.OwnerReferences, was.OwnerReferences), validation.ValidateTalosClusterUpdate(cluster, was)...)
}

// WarningsOnCreate tells of what is allowed and may be unwise.
func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return validation.ClusterWarnings(obj.(*ichor.TalosCluster))
}

// WarningsOnUpdate tells of what is allowed and may be unwise.
func (strategy) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return validation.ClusterWarnings(obj.(*ichor.TalosCluster))
}

// Canonicalize changes nothing.
func (strategy) Canonicalize(runtime.Object) {}

// canonicalizeValues writes the chart's values with sorted keys and without white space, so that the same values in
// another spelling are no change.
func canonicalizeValues(cluster *ichor.TalosCluster) {
	cilium := cluster.Spec.CNI.Cilium
	if cilium == nil || cilium.Values == nil || len(cilium.Values.Raw) == 0 {
		return
	}
	cilium.Values = &ichor.JSONObject{Raw: ichor.CanonicalJSON(cilium.Values.Raw)}
}

// keepMeta undoes every change of the metadata but of managedFields and resourceVersion, which the generic registry
// needs as they came.
func keepMeta(cluster, was *ichor.TalosCluster) {
	version, managed := cluster.ResourceVersion, cluster.ManagedFields
	cluster.ObjectMeta = *was.ObjectMeta.DeepCopy()
	cluster.ResourceVersion, cluster.ManagedFields = version, managed
}

// statusStrategy is the door for what was observed.
type statusStrategy struct{ strategy }

// GetResetFields is all but the status, and the slots within it.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Status("metadata", "spec", "status.controlPlaneSlots", "status.controlPlanes.approved", "status.controlPlanes.limit")
}

// PrepareForUpdate keeps all but the status, and the slots within it.
func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	cluster, was := obj.(*ichor.TalosCluster), old.(*ichor.TalosCluster)
	keepMeta(cluster, was)
	cluster.Spec = was.Spec
	cluster.Status.ControlPlaneSlots = was.Status.ControlPlaneSlots
	slots.Count(cluster)
	recordProgress(cluster, was.Status.Conditions)
}

// ValidateUpdate judges a status.
func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateTalosClusterStatusUpdate(obj.(*ichor.TalosCluster), old.(*ichor.TalosCluster))
}

// WarningsOnUpdate returns none: who writes the status can't change the spec.
func (statusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// finalizeStrategy is the door through which the controller lets an object go.
type finalizeStrategy struct{ strategy }

// GetResetFields is all but the finalizers.
func (finalizeStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return reset.Fields("metadata.labels", "metadata.annotations", "metadata.ownerReferences", "metadata.deletionTimestamp", "spec", "status")
}

// PrepareForUpdate keeps all but the finalizers.
func (finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	cluster, was := obj.(*ichor.TalosCluster), old.(*ichor.TalosCluster)
	finalizers := cluster.Finalizers
	keepMeta(cluster, was)
	cluster.Finalizers = finalizers
	cluster.Spec, cluster.Status = was.Spec, was.Status
}

// ValidateUpdate judges a change of the finalizers.
func (finalizeStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateTalosClusterFinalizeUpdate(obj.(*ichor.TalosCluster), old.(*ichor.TalosCluster))
}

// WarningsOnUpdate returns none.
func (finalizeStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// GetAttrs returns what selectors see.
func GetAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	cluster, ok := obj.(*ichor.TalosCluster)
	if !ok {
		return nil, nil, fmt.Errorf("select a TalosCluster: got %T", obj)
	}
	return cluster.Labels, generic.ObjectMetaFieldsSet(&cluster.ObjectMeta, false), nil
}
