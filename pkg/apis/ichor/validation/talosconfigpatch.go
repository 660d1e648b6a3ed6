// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

const (
	maxPriority     = 1_000_000
	maxPatch        = 512 << 10
	maxDocuments    = 256
	maxSecretValues = 64
	maxRefusals     = 32
)

// ValidateTalosConfigPatch judges a patch, but for what is Talos' own: its sections and documents.
func ValidateTalosConfigPatch(patch *ichor.TalosConfigPatch) field.ErrorList {
	path, spec := field.NewPath("spec"), &patch.Spec
	errs := objectName(patch.Name, field.NewPath("metadata", "name"))
	target := path.Child("target")
	errs = append(errs, clusterRef(spec.Target.ClusterRef, target.Child("clusterRef"))...)
	if spec.Target.Role != "" {
		errs = append(errs, oneOf(spec.Target.Role, target.Child("role"), ichor.RoleControlPlane, ichor.RoleWorker)...)
	}
	errs = append(errs, selector(spec.Target.MachineSelector, target.Child("machineSelector"))...)
	errs = append(errs, machineNames(spec.Target.MachineNames, target.Child("machineNames"))...)
	if spec.Priority != nil {
		errs = append(errs, between(*spec.Priority, 0, maxPriority, path.Child("priority"))...)
	}
	if spec.Machine == nil && spec.Cluster == nil && len(spec.Documents) == 0 {
		errs = append(errs, field.Required(path, "at least one of machine, cluster and documents"))
	}
	if len(spec.Documents) > maxDocuments {
		errs = append(errs, field.TooMany(path.Child("documents"), len(spec.Documents), maxDocuments))
	}
	if size := patchSize(spec); size > maxPatch {
		errs = append(errs, field.Invalid(path, fmt.Sprintf("%d bytes", size), fmt.Sprintf("must be at most %d bytes of configuration; split it into several patches", maxPatch)))
	}
	return append(errs, validateSecretValues(spec.SecretValues, path.Child("secretValues"))...)
}

func patchSize(spec *ichor.TalosConfigPatchSpec) int {
	size := 0
	if spec.Machine != nil {
		size += len(spec.Machine.Raw)
	}
	if spec.Cluster != nil {
		size += len(spec.Cluster.Raw)
	}
	for _, document := range spec.Documents {
		size += len(document.Raw)
	}
	return size
}

func validateSecretValues(values []ichor.SecretValue, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(values) > maxSecretValues {
		errs = append(errs, field.TooMany(path, len(values), maxSecretValues))
	}
	seen := map[string]bool{}
	for i, value := range values {
		path := path.Index(i)
		switch {
		case !strings.HasPrefix(value.Path, "/machine/") && !strings.HasPrefix(value.Path, "/cluster/") && !strings.HasPrefix(value.Path, "/documents/"):
			errs = append(errs, field.Invalid(path.Child("path"), value.Path, "must be a JSON pointer that begins with /machine/, /cluster/ or /documents/KIND/NAME/"))
		case strings.HasSuffix(value.Path, "/") || strings.HasPrefix(value.Path, "/documents/") && strings.Count(value.Path, "/") < 4:
			errs = append(errs, field.Invalid(path.Child("path"), value.Path, "must lead to a field"))
		case seen[value.Path]:
			errs = append(errs, field.Duplicate(path.Child("path"), value.Path))
		}
		seen[value.Path] = true
		errs = append(errs, objectName(value.SecretKeyRef.Name, path.Child("secretKeyRef", "name"))...)
		errs = append(errs, name(value.SecretKeyRef.Key, path.Child("secretKeyRef", "key"), utilvalidation.IsConfigMapKey)...)
	}
	return errs
}

// ValidateTalosConfigPatchUpdate judges a change through the main resource.
func ValidateTalosConfigPatchUpdate(patch, was *ichor.TalosConfigPatch) field.ErrorList {
	return append(ValidateTalosConfigPatch(patch), immutable(patch.Spec.Target.ClusterRef, was.Spec.Target.ClusterRef,
		field.NewPath("spec", "target", "clusterRef"), "can't be changed; make a patch for the other cluster")...)
}

// ValidateTalosConfigPatchStatusUpdate judges a status.
func ValidateTalosConfigPatchStatusUpdate(patch, _ *ichor.TalosConfigPatch) field.ErrorList {
	path := field.NewPath("status")
	errs := conditions(patch.Status.Conditions, path)
	if len(patch.Status.Refusals) > maxRefusals {
		errs = append(errs, field.TooMany(path.Child("refusals"), len(patch.Status.Refusals), maxRefusals))
	}
	return errs
}

// ConfigPatchWarnings tell of what is allowed and may be unwise.
func ConfigPatchWarnings(patch *ichor.TalosConfigPatch) []string {
	target := &patch.Spec.Target
	if patch.Spec.Cluster != nil && target.Role == ichor.RoleWorker {
		return []string{"spec.cluster: most of it is about control planes, and this patch is for workers"}
	}
	return nil
}
