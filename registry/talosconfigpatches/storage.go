// SPDX-License-Identifier: Apache-2.0

// Package talosconfigpatches is the storage of TalosConfigPatches. What is Talos' own in them is decoded strictly by
// Talos' machinery when it is written; a patch that Talos wouldn't take, or that holds a secret, is never stored.
package talosconfigpatches

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/registry/standard"
	"maesh.dev/ichor/registry/verbs"
)

// Storage is the storage of the kind and its subresources.
type Storage struct {
	*standard.Storage[*ichor.TalosConfigPatch, ichor.TalosConfigPatchSpec, ichor.TalosConfigPatchStatus]
	// Preview tells what a patch would do.
	Preview *PreviewREST
}

// Cluster reads a TalosCluster.
type Cluster func(ctx context.Context, name string) (*ichor.TalosCluster, error)

// Dependencies are what the storage works with besides.
type Dependencies struct {
	// Cluster reads the cluster that a patch is for; patches are held against it.
	Cluster Cluster
	// Machines reads all machines.
	Machines func(ctx context.Context) ([]ichor.TalosMachine, error)
	Checker  verbs.Checker
}

// New builds it.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, d Dependencies) (*Storage, error) {
	seer := &seer{cluster: d.Cluster, machines: d.Machines, checker: d.Checker, busy: make(chan struct{}, atATime)}
	base, err := standard.New(typer, options, standard.Kind[*ichor.TalosConfigPatch, ichor.TalosConfigPatchSpec, ichor.TalosConfigPatchStatus]{
		Resource: "talosconfigpatches", Singular: "talosconfigpatch", ShortNames: []string{"tcp"},
		New:            func() *ichor.TalosConfigPatch { return &ichor.TalosConfigPatch{} },
		NewList:        func() runtime.Object { return &ichor.TalosConfigPatchList{} },
		Spec:           func(p *ichor.TalosConfigPatch) *ichor.TalosConfigPatchSpec { return &p.Spec },
		Status:         func(p *ichor.TalosConfigPatch) *ichor.TalosConfigPatchStatus { return &p.Status },
		Conditions:     func(p *ichor.TalosConfigPatch) *[]metav1.Condition { return &p.Status.Conditions },
		Progress:       progress.TalosConfigPatch,
		Prepare:        canonicalize,
		Validate:       validate,
		ValidateUpdate: validateUpdate,
		ValidateAmong:  d.Cluster.validate,
		ValidateStatus: validation.ValidateTalosConfigPatchStatusUpdate,
		Warnings:       validation.ConfigPatchWarnings,
		Tried:          seer.tried,
		Selectable: func(p *ichor.TalosConfigPatch) fields.Set {
			return fields.Set{"spec.target.clusterRef.name": p.Spec.Target.ClusterRef.Name}
		},
		Columns: []metav1.TableColumnDefinition{
			standard.Column("Target", "The machines that are meant."),
			standard.Column("Priority", "Patches with a low priority are merged first."),
			standard.Column("Documents", "How many parts there are: machine, cluster and documents."),
			standard.Column("Applied", "Machines that run with the patch, of those that are meant."),
		},
		Cells: cells,
	})
	if err != nil {
		return nil, err
	}
	seer.patches = base.Main
	return &Storage{Storage: base, Preview: &PreviewREST{store: base.Main.Store, seer: seer}}, nil
}

// canonicalize spells what is Talos' own in one way, so that the same in another spelling is no change. A document
// without a name has no name, rather than an empty one.
func canonicalize(_ context.Context, patch, _ *ichor.TalosConfigPatch) {
	if section := patch.Spec.Machine; section != nil {
		section.Raw = ichor.CanonicalJSON(section.Raw)
	}
	if section := patch.Spec.Cluster; section != nil {
		section.Raw = ichor.CanonicalJSON(section.Raw)
	}
	for i := range patch.Spec.Documents {
		document := &patch.Spec.Documents[i]
		document.Raw = ichor.CanonicalJSON(document.Raw, "name")
	}
}

func parts(patch *ichor.TalosConfigPatch) machineconfig.PatchParts {
	var parts machineconfig.PatchParts
	if patch.Spec.Machine != nil {
		parts.Machine = patch.Spec.Machine.Raw
	}
	if patch.Spec.Cluster != nil {
		parts.Cluster = patch.Spec.Cluster.Raw
	}
	for _, document := range patch.Spec.Documents {
		parts.Documents = append(parts.Documents, document.Raw)
	}
	for _, value := range patch.Spec.SecretValues {
		parts.SecretPaths = append(parts.SecretPaths, value.Path)
	}
	return parts
}

func validate(patch *ichor.TalosConfigPatch) field.ErrorList {
	return append(validation.ValidateTalosConfigPatch(patch), validateParts(patch)...)
}

func validateUpdate(patch, was *ichor.TalosConfigPatch) field.ErrorList {
	return append(validation.ValidateTalosConfigPatchUpdate(patch, was), validateParts(patch)...)
}

// validateParts judges what is Talos' own: whether Talos takes it, whether something else decides on it, and whether the
// machines that it is for have it.
func validateParts(patch *ichor.TalosConfigPatch) field.ErrorList {
	parts, path := parts(patch), field.NewPath("spec")
	errs := machineconfig.CheckOwned(parts, false, path)
	errs = append(errs, machineconfig.CheckRole(parts, patch.Spec.Target.Role == ichor.RoleWorker, path)...)
	for _, fault := range machineconfig.CheckPatch(parts, path) {
		// Where a field may not be at all, what is wrong with its value is of no interest.
		if !slices.ContainsFunc(errs, func(above *field.Error) bool { return within(fault.Field, above.Field) }) {
			errs = append(errs, fault)
		}
	}
	return errs
}

// validate judges what is Talos' own by what the cluster is: its version of Talos must know it, and Cilium decides on more
// where it is. A cluster may change after its patches, so rendering judges the same again, and a patch that isn't changed is
// left in peace; one for a cluster that isn't there yet is judged then.
func (cluster Cluster) validate(ctx context.Context, patch, was *ichor.TalosConfigPatch) field.ErrorList {
	if was != nil && apiequality.Semantic.DeepEqual(patch.Spec, was.Spec) {
		return nil
	}
	path := field.NewPath("spec")
	name := patch.Spec.Target.ClusterRef.Name
	owner, err := cluster(ctx, name)
	switch {
	case name == "" || apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return field.ErrorList{field.InternalError(path.Child("target", "clusterRef"), fmt.Errorf("read cluster %s: %w", name, err))}
	}
	parts := parts(patch)
	errs := machineconfig.CheckVersion(parts, owner.Spec.TalosVersion, path)
	if owner.Spec.CNI.Cilium == nil {
		return errs
	}
	anyway := machineconfig.CheckOwned(parts, false, path)
	for _, fault := range machineconfig.CheckOwned(parts, true, path) {
		if !slices.ContainsFunc(anyway, func(known *field.Error) bool { return known.Field == fault.Field }) {
			errs = append(errs, fault)
		}
	}
	return errs
}

// within tells whether a field is, or lies below, another.
func within(path, above string) bool {
	rest, found := strings.CutPrefix(path, above)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func cells(patch *ichor.TalosConfigPatch) []any {
	spec, machines := &patch.Spec, patch.Status.Machines
	documents := len(spec.Documents)
	for _, given := range []bool{spec.Machine != nil, spec.Cluster != nil} {
		if given {
			documents++
		}
	}
	applied := strconv.Itoa(int(machines.Applied)) + "/" + strconv.Itoa(int(machines.Matched))
	if spec.Disabled {
		applied = "disabled"
	}
	priority := standard.None
	if spec.Priority != nil {
		priority = strconv.Itoa(int(*spec.Priority))
	}
	return []any{target(&spec.Target), priority, strconv.Itoa(documents), applied}
}

// target says in a few words which machines are meant.
func target(target *ichor.PatchTarget) string {
	text := target.ClusterRef.Name
	if target.Role != "" {
		text += "/" + string(target.Role)
	}
	if target.MachineSelector != nil {
		text += " " + metav1.FormatLabelSelector(target.MachineSelector)
	}
	switch names := target.MachineNames; len(names) {
	case 0:
		return text
	case 1:
		return text + " " + names[0]
	default:
		return text + " " + strconv.Itoa(len(names)) + " machines"
	}
}
