// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	_ "unsafe" // for the list of kinds that the machinery keeps to itself

	"github.com/google/go-cmp/cmp"
	_ "github.com/siderolabs/talos/pkg/machinery/config/configloader" // registers all kinds
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor/talosschema"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/test/documents"
)

// registered are the kinds that the machinery's decoder knows.
//
//go:linkname registered github.com/siderolabs/talos/pkg/machinery/config/internal/registry.Kinds
func registered() []string

func all(t *testing.T) []documents.Example {
	t.Helper()
	examples, err := documents.All()
	if err != nil {
		t.Fatal(err)
	}
	return examples
}

func patchOf(t *testing.T, example documents.Example) *v1alpha1.TalosConfigPatch {
	t.Helper()
	patch, err := example.Patch()
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// check judges a patch as the API does, but for what is Kubernetes' own.
func check(patch *v1alpha1.TalosConfigPatch) field.ErrorList {
	parts := machineconfig.PartsOf(patch)
	return append(machineconfig.CheckPatch(parts, field.NewPath("spec")), machineconfig.CheckOwned(parts, false, field.NewPath("spec"))...)
}

// A kind that a newer machinery brings has no example yet, and can't be forgotten.
func TestEveryKindHasAnExample(t *testing.T) {
	t.Parallel()
	var want, have []string
	for _, kind := range registered() {
		if kind != machineconfig.MainDocument {
			want = append(want, kind)
		}
	}
	if diff := cmp.Diff(want, talosschema.Kinds()); diff != "" {
		t.Errorf("kinds that the decoder knows, and kinds with a schema (-decoder +schema):\n%s", diff)
	}
	want = append(want, documents.Machine, documents.Cluster)
	for _, example := range all(t) {
		have = append(have, example.Kind)
	}
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("kinds and examples (-kinds +examples):\n%s", diff)
	}
}

// Every field of the sections is in an example, or something else than patches decides on it.
func TestEveryFieldOfTheSectionsHasAnExample(t *testing.T) {
	t.Parallel()
	examples := map[string]map[string]any{}
	for _, example := range all(t) {
		patch := patchOf(t, example)
		switch example.Kind {
		case documents.Machine:
			examples[talosschema.Machine] = fieldsOf(t, patch.Spec.Machine.Raw)
		case documents.Cluster:
			examples[talosschema.Cluster] = fieldsOf(t, patch.Spec.Cluster.Raw)
		}
	}
	for definition, fields := range examples {
		section := map[string]string{talosschema.Machine: "machine", talosschema.Cluster: "cluster"}[definition]
		for name := range talosschema.Definition(definition).Properties {
			if _, there := fields[name]; there {
				continue
			}
			raw := fmt.Appendf(nil, `{%q:{}}`, name)
			parts := machineconfig.PatchParts{Machine: raw}
			if section == "cluster" {
				parts = machineconfig.PatchParts{Cluster: raw}
			}
			if len(machineconfig.CheckOwned(parts, false, field.NewPath("spec"))) == 0 {
				t.Errorf("%s.%s has no example", section, name)
			}
		}
	}
}

func fieldsOf(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestEveryExampleIsAccepted(t *testing.T) {
	t.Parallel()
	for _, example := range all(t) {
		t.Run(example.Kind, func(t *testing.T) {
			t.Parallel()
			faults := check(patchOf(t, example))
			if example.Kind == documents.Approved {
				if len(faults) != 1 || !strings.Contains(faults[0].Detail, "approved") {
					t.Errorf("got %v, want it to say that approval decides", faults)
				}
				return
			}
			if len(faults) > 0 {
				t.Errorf("faults: %v", faults)
			}
		})
	}
}

// Whatever name is wrong, wherever in an example, is named with its path, and the values beside it aren't.
func TestEveryMisspeltFieldIsNamed(t *testing.T) {
	t.Parallel()
	for _, example := range all(t) {
		t.Run(example.Kind, func(t *testing.T) {
			t.Parallel()
			misspellings, err := example.Misspellings()
			if err != nil || len(misspellings) == 0 {
				t.Fatalf("%d ways to get a name wrong, %v", len(misspellings), err)
			}
			for _, wrong := range misspellings {
				faults := check(wrong.Patch)
				if !slices.ContainsFunc(faults, func(fault *field.Error) bool { return fault.Field == wrong.Path }) {
					t.Errorf("%s is wrong, and the faults are %v", wrong.Path, faults)
				}
			}
		})
	}
}

// No example's Secret is missing, and none is there for nothing.
func TestEverySecretIsUsed(t *testing.T) {
	t.Parallel()
	secrets := documents.Secrets()
	used := map[string]bool{}
	for _, example := range all(t) {
		for _, value := range patchOf(t, example).Spec.SecretValues {
			if secrets[value.SecretKeyRef.Key] == "" {
				t.Errorf("%s: there is no value %s", example.Kind, value.SecretKeyRef.Key)
			}
			used[value.SecretKeyRef.Key] = true
		}
	}
	if len(used) != len(secrets) {
		t.Errorf("%d values are used, of %d", len(used), len(secrets))
	}
}
