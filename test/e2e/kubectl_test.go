// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/test/localstack"
)

// kubectlSemantics works on the one opaque field there is, the values of a chart, as people work on CRDs.
func kubectlSemantics(t *testing.T, s *suite) {
	admin := s.stack.Dir().Kubeconfig()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	cluster := s.cluster(t)
	write := func(values string) {
		t.Helper()
		spec, err := json.Marshal(cluster.Spec)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(spec, &fields); err != nil {
			t.Fatal(err)
		}
		fields["cni"] = map[string]any{"cilium": map[string]any{"version": "1.20.4", "values": json.RawMessage(values)}}
		manifest, err := json.Marshal(map[string]any{
			"apiVersion": "ichor.maesh.dev/v1alpha1", "kind": "TalosCluster", "metadata": map[string]any{"name": localstack.ClusterName}, "spec": fields,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, manifest, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		var wanted, got any
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(s.must(t, admin, "kubectl", "get", "talosclusters", localstack.ClusterName, "-o", "jsonpath={.spec.cni.cilium.values}")), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	}

	// Apply on an object that wasn't made by apply warns once; what counts is the outcome.
	write(`{"hubble":{"enabled":true,"$patch":"replace"},"list":[{"name":"a"},{"name":"b"}],"deep":{"one":1,"two":2}}`)
	s.must(t, admin, "kubectl", "apply", "-f", file)
	expect(`{"hubble":{"enabled":true,"$patch":"replace"},"list":[{"name":"a"},{"name":"b"}],"deep":{"one":1,"two":2}}`)
	generation := s.cluster(t).Generation
	if out := s.must(t, admin, "kubectl", "apply", "-f", file); !strings.Contains(out, "unchanged") {
		t.Errorf("the same file applied again says %q, want unchanged", out)
	}
	if got := s.cluster(t).Generation; got != generation {
		t.Errorf("the generation went from %d to %d though nothing changed", generation, got)
	}

	// A key that left the file leaves the object; a list is replaced as a whole.
	write(`{"hubble":{"enabled":false},"list":[{"name":"b"}],"deep":{"one":1}}`)
	s.must(t, admin, "kubectl", "apply", "-f", file)
	expect(`{"hubble":{"enabled":false},"list":[{"name":"b"}],"deep":{"one":1}}`)

	s.must(t, admin, "kubectl", "patch", "talosclusters", localstack.ClusterName, "--type=merge",
		"-p", `{"spec":{"cni":{"cilium":{"values":{"deep":{"one":null,"three":3,"$patch":"delete"}}}}}}`)
	expect(`{"hubble":{"enabled":false},"list":[{"name":"b"}],"deep":{"three":3,"$patch":"delete"}}`)

	edit := s.runWith(t, admin, []string{`KUBE_EDITOR=sed -i -e s/three:.*/three:\ 4/`}, "", "kubectl", "edit", "talosclusters", localstack.ClusterName)
	if edit.status != 0 {
		t.Errorf("kubectl edit: status %d\n%s%s", edit.status, edit.out, edit.err)
	}
	expect(`{"hubble":{"enabled":false},"list":[{"name":"b"}],"deep":{"three":4,"$patch":"delete"}}`)

	_, err := s.admin.IchorV1alpha1().TalosClusters().Patch(t.Context(), localstack.ClusterName, types.StrategicMergePatchType, []byte(`{"spec":{}}`), metav1.PatchOptions{})
	if !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("a strategic merge patch is answered with %v, want 415 as from a CRD", err)
	}
	// Ichor's cluster has no plugin of its own for the stories that follow.
	s.must(t, admin, "kubectl", "patch", "talosclusters", localstack.ClusterName, "--type=merge", "-p", `{"spec":{"cni":{"cilium":null}}}`)
}
