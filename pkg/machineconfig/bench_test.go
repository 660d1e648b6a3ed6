// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// benchInputs are a machine with fifty patches.
func benchInputs(b *testing.B) Inputs {
	b.Helper()
	bundle, err := bundleOnce()
	if err != nil {
		b.Fatal(err)
	}
	cluster, m := testCluster(), testMachine()
	m.Spec.ClusterRef.Name = cluster.Name
	in := Inputs{Bundle: bundle, Cluster: cluster, Machine: m, Facts: testFacts(cluster)}
	for i := range 50 {
		patch := &v1alpha1.TalosConfigPatch{}
		patch.Name = fmt.Sprintf("patch-%d", i)
		patch.Spec.Machine = &v1alpha1.MachineSection{Raw: fmt.Appendf(nil, `{"sysctls":{"net.core.somaxconn":"%d","vm.x%d":"1"},"nodeLabels":{"l%d":"v"}}`, i, i, i)}
		ready, err := Compile(patch, false, testSecrets)
		if err != nil {
			b.Fatal(err)
		}
		in.Patches = append(in.Patches, ready)
	}
	return in
}

func BenchmarkRenderFiftyPatches(b *testing.B) {
	in := benchInputs(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Render(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenderWithoutPatches(b *testing.B) {
	in := benchInputs(b)
	in.Patches = nil
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Render(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	text, err := Render(benchInputs(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compare(text, append(text[:len(text):len(text)], '\n'), nil); err != nil {
			b.Fatal(err)
		}
	}
}
