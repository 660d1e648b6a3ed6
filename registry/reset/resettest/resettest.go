// SPDX-License-Identifier: Apache-2.0

// Package resettest holds storage to what it declares: the fields that its strategy resets are the fields that it says
// it resets, no more and no less. Server-side apply believes what is declared; a difference makes somebody the owner of
// a field that he can't change, or takes a field from its owner.
package resettest

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	ichorfuzzer "maesh.dev/ichor/pkg/apis/ichor/fuzzer"
	"maesh.dev/ichor/pkg/apis/ichor/install"
	"maesh.dev/ichor/pkg/apis/ichor/progress"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Writer is a door through which objects of a kind are changed.
type Writer struct {
	// Kind is the kind of the objects.
	Kind string
	// Strategy prepares an update.
	Strategy interface {
		PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	}
	// Declared keeps the fields that aren't reset.
	Declared fieldpath.Filter
	// Adjust makes the two objects such that the strategy takes the new one's fields. May be nil.
	Adjust func(obj, old runtime.Object)
	// Kept are fields that are neither taken nor reset, as dotted paths; they are put aside.
	Kept []string
}

// DeclaredBy is what a storage declares of the fields that it resets; nil if it declares nothing.
func DeclaredBy(storage any) fieldpath.Filter {
	version := fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String())
	switch s := storage.(type) {
	case rest.ResetFieldsStrategy:
		return fieldpath.NewExcludeFilterSetMap(s.GetResetFields())[version]
	case rest.ResetFieldsFilterStrategy:
		return s.GetResetFieldsFilter()[version]
	}
	return nil
}

// system are the fields of the metadata that the generic registry keeps, whatever the strategy does.
var system = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp",
	"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.managedFields", "metadata.selfLink", "metadata.generateName",
	"apiVersion", "kind",
}

// Check fills an old and a new object so that every field differs, lets the strategy prepare the update, and compares
// what became of the new one's fields with what is declared.
func Check(t *testing.T, w Writer) {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(c serializer.CodecFactory) []any { return ichorfuzzer.Funcs(c) }),
		rand.NewSource(rand.Int63()), codecs).NilChance(0).NumElements(2, 2)
	old := fill(t, scheme, filler, w.Kind)
	obj := differing(t, scheme, fill(t, scheme, filler, w.Kind), old)
	finalizer(t, obj, "example.com/new")
	finalizer(t, old, "example.com/old")
	if w.Adjust != nil {
		w.Adjust(obj, old)
	}
	before, was := fields(t, scheme, obj), fields(t, scheme, old)
	var compared []string
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if slices.ContainsFunc(append(w.Kept, system...), func(prefix string) bool { return strings.HasPrefix(path, prefix+".") || path == prefix }) {
			continue
		}
		compared = append(compared, path)
		if before[path] == was[path] {
			t.Errorf("%s is the same in both objects: nothing is shown by it", path)
		}
	}
	w.Strategy.PrepareForUpdate(context.Background(), obj, old)
	after := fields(t, scheme, obj)
	for _, path := range compared {
		if reset, says := before[path] != after[path], resets(w.Declared, path); reset != says {
			t.Errorf("%T: %s reset: %t, declared: %t (new %s, old %s, stored %s)", w.Strategy, path, reset, says, before[path], was[path], after[path])
		}
	}
}

// differing is the object with whatever is the same in the other one changed: random values of few characters, and
// truths, are the same now and then.
func differing(t *testing.T, scheme *runtime.Scheme, object, other runtime.Object) runtime.Object {
	t.Helper()
	changed := differ(tree(t, scheme, object), tree(t, scheme, other))
	text, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	versioned, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(changed.(map[string]any)["kind"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, versioned); err != nil {
		t.Fatal(err)
	}
	internal, err := scheme.ConvertToVersion(versioned, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	return internal
}

func differ(value, other any) any {
	switch v := value.(type) {
	case map[string]any:
		others, _ := other.(map[string]any)
		for name, child := range v {
			if name != "kind" && name != "apiVersion" {
				v[name] = differ(child, others[name])
			}
		}
	case bool:
		return !(other == true)
	case float64:
		if v == other {
			return v + 1
		}
	case string:
		if v == other {
			return v + "x"
		}
	}
	return value
}

// finalizer sets the object's only finalizer: random ones may be empty or twice the same, and are then made one.
func finalizer(t *testing.T, object runtime.Object, name string) {
	t.Helper()
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	accessor.SetFinalizers([]string{name})
}

func fill(t *testing.T, scheme *runtime.Scheme, filler interface{ Fill(any) }, kind string) runtime.Object {
	t.Helper()
	object, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	internal, err := scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	filler.Fill(internal)
	return internal
}

func tree(t *testing.T, scheme *runtime.Scheme, object runtime.Object) map[string]any {
	t.Helper()
	versioned, err := scheme.ConvertToVersion(object.DeepCopyObject(), v1alpha1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(versioned)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fields returns the object's fields as JSON by dotted path. Lists are one field each; the conditions that the server
// writes, whoever comes, are left out.
func fields(t *testing.T, scheme *runtime.Scheme, object runtime.Object) map[string]string {
	t.Helper()
	all := tree(t, scheme, object)
	if status, ok := all["status"].(map[string]any); ok {
		conditions, _ := status["conditions"].([]any)
		status["conditions"] = slices.DeleteFunc(conditions, func(c any) bool {
			kind, _ := c.(map[string]any)["type"].(string)
			return slices.Contains(progress.Types(), kind)
		})
	}
	out := map[string]string{}
	flatten(all, "", out)
	return out
}

// opaque are maps whose keys are data, not fields.
var opaque = []string{"metadata.labels", "metadata.annotations", "spec.nodeLabels", "spec.cni.cilium.values", "spec.machine", "spec.cluster"}

func flatten(value any, path string, out map[string]string) {
	if tree, ok := value.(map[string]any); ok && !slices.Contains(opaque, path) {
		for name, child := range tree {
			flatten(child, strings.TrimPrefix(path+"."+name, "."), out)
		}
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // what was decoded from JSON encodes
	}
	out[path] = string(text)
}

// resets tells whether the filter takes the path away.
func resets(filter fieldpath.Filter, path string) bool {
	var parts []any
	for part := range strings.SplitSeq(path, ".") {
		parts = append(parts, part)
	}
	return filter.Filter(fieldpath.NewSet(fieldpath.MakePathOrDie(parts...))).Empty()
}
