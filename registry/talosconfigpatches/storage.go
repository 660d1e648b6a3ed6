// SPDX-License-Identifier: Apache-2.0

// Package talosconfigpatches is the storage of TalosConfigPatches. What is Talos' own in them is decoded strictly by
// Talos' machinery when it is written; a patch that Talos wouldn't take, or that holds a secret, is never stored.
package talosconfigpatches

import (
	"context"
	"slices"
	"strconv"
	"strings"

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
)

// Storage is the storage of the kind.
type Storage = standard.Storage[*ichor.TalosConfigPatch, ichor.TalosConfigPatchSpec, ichor.TalosConfigPatchStatus]

// New builds it.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*Storage, error) {
	return standard.New(typer, options, standard.Kind[*ichor.TalosConfigPatch, ichor.TalosConfigPatchSpec, ichor.TalosConfigPatchStatus]{
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
		ValidateStatus: validation.ValidateTalosConfigPatchStatusUpdate,
		Warnings:       validation.ConfigPatchWarnings,
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
// machines that it is for have it. Whether the cluster has Cilium, which decides on more, is found when it is rendered.
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
