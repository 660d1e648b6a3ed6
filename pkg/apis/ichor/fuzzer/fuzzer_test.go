// SPDX-License-Identifier: Apache-2.0

package fuzzer_test

import (
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	ichorfuzzer "maesh.dev/ichor/pkg/apis/ichor/fuzzer"
	"maesh.dev/ichor/pkg/apis/ichor/install"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func scheme() (*runtime.Scheme, serializer.CodecFactory, fuzzer.FuzzerFuncs) {
	s := runtime.NewScheme()
	install.Install(s)
	return s, serializer.NewCodecFactory(s), fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(codecs serializer.CodecFactory) []any { return ichorfuzzer.Funcs(codecs) })
}

// The kinds are stored as JSON and never as protobuf.
func TestEveryKindSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	s, codecs, funcs := scheme()
	roundtrip.RoundTripTypesWithoutProtobuf(t, s, codecs, fuzzer.FuzzerFor(funcs, rand.NewSource(rand.Int63()), codecs), nil)
}

func TestEveryKindSurvivesARoundTripToUnstructured(t *testing.T) {
	t.Parallel()
	s, codecs, funcs := scheme()
	for _, kind := range []string{"TalosCluster", "TalosMachine"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			filler := fuzzer.FuzzerFor(funcs, rand.NewSource(rand.Int63()), codecs)
			for range 50 {
				object, err := s.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
				if err != nil {
					t.Fatal(err)
				}
				filler.Fill(object)
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
				if err != nil {
					t.Fatalf("to unstructured: %v", err)
				}
				back, _ := s.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, back); err != nil {
					t.Fatalf("from unstructured: %v", err)
				}
			}
		})
	}
}
