// SPDX-License-Identifier: Apache-2.0

// Package resettest holds strategies to what they declare: the fields that a strategy resets are the fields that it says
// it resets, no more and no less. Server-side apply believes what is declared; a difference makes somebody the owner of
// a field that he can't change, or takes a field from its owner.
package resettest

import (
	"context"
	"encoding/json"
	"fmt"
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
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	ichorfuzzer "maesh.dev/ichor/pkg/apis/ichor/fuzzer"
	"maesh.dev/ichor/pkg/apis/ichor/install"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Strategy is what is checked of a strategy.
type Strategy interface {
	PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set
}

// system are the fields of the metadata that the generic registry keeps, whatever the strategy does.
var system = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp",
	"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.managedFields", "metadata.selfLink", "metadata.generateName",
	"apiVersion", "kind",
}

// Check fills an old and a new object so that every field differs, lets the strategy prepare the update, and compares
// what became of the new one's fields with what the strategy declares. Adjust makes the two objects such that the
// strategy takes the new one's fields; kept names fields that are equal in both.
func Check[T runtime.Object](t *testing.T, strategy Strategy, adjust func(obj, old T), kept ...string) {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(c serializer.CodecFactory) []any { return ichorfuzzer.Funcs(c) }),
		rand.NewSource(rand.Int63()), codecs).NilChance(0).NumElements(2, 2)
	declared := strategy.GetResetFields()[fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String())]
	if declared == nil {
		t.Fatalf("%T declares nothing for %s", strategy, v1alpha1.SchemeGroupVersion)
	}
	var zero T
	kind := fmt.Sprintf("%T", zero)
	var obj, old T
	var before, was map[string]string
	var compared, same []string
	// Random values of few characters are equal now and then.
	for range 100 {
		obj, old = fill[T](t, scheme, filler, kind), fill[T](t, scheme, filler, kind)
		finalizer(t, obj, "example.com/new")
		finalizer(t, old, "example.com/old")
		if adjust != nil {
			adjust(obj, old)
		}
		before, was = fields(t, scheme, obj), fields(t, scheme, old)
		compared, same = nil, nil
		for _, path := range slices.Sorted(maps.Keys(before)) {
			if slices.ContainsFunc(append(kept, system...), func(prefix string) bool { return strings.HasPrefix(path, prefix+".") || path == prefix }) {
				continue
			}
			compared = append(compared, path)
			if before[path] == was[path] {
				same = append(same, path)
			}
		}
		if len(same) == 0 {
			break
		}
	}
	if len(same) > 0 {
		t.Fatalf("%v are the same in both objects: nothing is shown by them", same)
	}
	strategy.PrepareForUpdate(context.Background(), obj, old)
	after := fields(t, scheme, obj)
	for _, path := range compared {
		if reset, says := before[path] != after[path], covered(declared, path); reset != says {
			t.Errorf("%T: %s reset: %t, declared: %t (new %s, old %s, stored %s)", strategy, path, reset, says, before[path], was[path], after[path])
		}
	}
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

func fill[T runtime.Object](t *testing.T, scheme *runtime.Scheme, filler interface{ Fill(any) }, kind string) T {
	t.Helper()
	_, name, _ := strings.Cut(kind, ".")
	object, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(name))
	if err != nil {
		t.Fatal(err)
	}
	internal, err := scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	filler.Fill(internal)
	return internal.(T)
}

// fields returns the object's fields as JSON by dotted path. Lists are one field each.
func fields(t *testing.T, scheme *runtime.Scheme, object runtime.Object) map[string]string {
	t.Helper()
	versioned, err := scheme.ConvertToVersion(object.DeepCopyObject(), v1alpha1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := meta.Accessor(versioned); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(versioned)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	flatten(tree, "", out)
	return out
}

// opaque are maps whose keys are data, not fields.
var opaque = []string{"metadata.labels", "metadata.annotations", "spec.nodeLabels", "spec.cni.cilium.values"}

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

// covered tells whether the set has the path or one above it.
func covered(set *fieldpath.Set, path string) bool {
	var parts []any
	for part := range strings.SplitSeq(path, ".") {
		parts = append(parts, part)
		if set.Has(fieldpath.MakePathOrDie(parts...)) {
			return true
		}
	}
	return false
}
