// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// oneCluster is a cluster with compare-and-swap.
type oneCluster struct {
	mu      sync.Mutex
	cluster v1alpha1.TalosCluster
	writes  int
}

func newOneCluster(count int32) *oneCluster {
	c := &oneCluster{}
	c.cluster.Name, c.cluster.ResourceVersion, c.cluster.Spec.ControlPlane.Count = "bench", "1", count
	return c
}

func (c *oneCluster) Get(context.Context, string) (*v1alpha1.TalosCluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cluster.DeepCopy(), nil
}

func (c *oneCluster) UpdateStatus(_ context.Context, cluster *v1alpha1.TalosCluster) (*v1alpha1.TalosCluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cluster.ResourceVersion != c.cluster.ResourceVersion {
		return nil, apierrors.NewConflict(ichor.Resource("talosclusters"), cluster.Name, fmt.Errorf("it moved on"))
	}
	c.writes++
	c.cluster = *cluster.DeepCopy()
	c.cluster.ResourceVersion = strconv.Itoa(c.writes + 1)
	return c.cluster.DeepCopy(), nil
}

func controlPlane(n int) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{}
	m.Name, m.UID = fmt.Sprintf("m-%d", n), types.UID(fmt.Sprintf("uid-%d", n))
	m.Spec.ClusterRef.Name, m.Spec.Role, m.Spec.ApprovalState = "bench", v1alpha1.RoleControlPlane, v1alpha1.ApprovalApproved
	m.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: "shown"}
	m.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}
	m.Status.MaintenanceFingerprint = "shown"
	m.Status.Inventory = &v1alpha1.MachineInventory{Disks: []v1alpha1.DiskInventory{{Device: "/dev/sda", Serial: "S1"}, {Device: "/dev/sdb", Serial: "S2"}}}
	return m
}

func TestNoMoreThanTheLimitWhateverTheNumberOfWebhooks(t *testing.T) {
	t.Parallel()
	cluster := newOneCluster(3)
	gates := []*SwapGate{NewSwapGate(cluster), NewSwapGate(cluster)}
	var mu sync.Mutex
	admitted := 0
	var group sync.WaitGroup
	for n := range 40 {
		group.Go(func() {
			if gates[n%2].Admit(t.Context(), controlPlane(n), false) == nil {
				mu.Lock()
				defer mu.Unlock()
				admitted++
			}
		})
	}
	group.Wait()
	if admitted != 4 || len(cluster.cluster.Status.ControlPlaneSlots) != 4 || cluster.writes != 4 {
		t.Errorf("%d admitted, %d slots, %d writes; want 4 of each", admitted, len(cluster.cluster.Status.ControlPlaneSlots), cluster.writes)
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	cluster := newOneCluster(1)
	gate := NewSwapGate(cluster)
	first, again, same, worker := controlPlane(1), controlPlane(1), controlPlane(2), controlPlane(3)
	first.Spec.Hostname, same.Spec.Hostname, again.Spec.Hostname = "cp", "cp", "cp"
	worker.Spec.Role = v1alpha1.RoleWorker
	for _, step := range []struct {
		name    string
		machine *v1alpha1.TalosMachine
		dryRun  bool
		refused bool
		slots   int
	}{
		{"a dry run takes none", first, true, false, 0},
		{"the first takes one", first, false, false, 1},
		{"the same machine takes its own again", again, false, false, 1},
		{"another of its hostname gets none", same, false, true, 1},
		{"a worker needs none", worker, false, false, 1},
		{"the second takes one", controlPlane(4), false, false, 2},
		{"the third is too many", controlPlane(5), false, true, 2},
	} {
		token := ""
		if slots := cluster.cluster.Status.ControlPlaneSlots; len(slots) > 0 {
			token = slots[0].Token
		}
		if err := gate.Admit(t.Context(), step.machine, step.dryRun); (err != nil) != step.refused {
			t.Errorf("%s: %v", step.name, err)
		}
		slots := cluster.cluster.Status.ControlPlaneSlots
		if len(slots) != step.slots {
			t.Errorf("%s: %d slots, want %d", step.name, len(slots), step.slots)
		}
		if step.machine == again && slots[0].Token == token {
			t.Errorf("%s: with the token it had", step.name)
		}
	}
}

func TestTheWebhookAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(Handler(CountGate{newOneCluster(1), func(context.Context, string) (int, error) { return 1, nil }}.Admit))
	defer server.Close()
	for name, tc := range map[string]struct {
		change    func(*v1alpha1.TalosMachine)
		operation admissionv1.Operation
		allowed   bool
	}{
		"a machine as it was shown":   {func(*v1alpha1.TalosMachine) {}, admissionv1.Update, true},
		"another certificate":         {func(m *v1alpha1.TalosMachine) { m.Status.MaintenanceFingerprint = "other" }, admissionv1.Update, false},
		"a disk that isn't there":     {func(m *v1alpha1.TalosMachine) { m.Spec.Disks[0].Match.Serial = "S9" }, admissionv1.Update, false},
		"a machine that is made so":   {func(*v1alpha1.TalosMachine) {}, admissionv1.Create, false},
		"a machine without a disk":    {func(m *v1alpha1.TalosMachine) { m.Spec.Disks = nil }, admissionv1.Update, false},
		"a worker, however many else": {func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleWorker }, admissionv1.Update, true},
	} {
		machine := controlPlane(1)
		tc.change(machine)
		raw, err := json.Marshal(machine)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(&admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request:  &admissionv1.AdmissionRequest{UID: "1", Name: machine.Name, Operation: tc.operation, Object: runtime.RawExtension{Raw: raw}},
		})
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.Post(server.URL, "application/json", bytes.NewReader(body)) //nolint:noctx // a test's own server
		if err != nil {
			t.Fatal(err)
		}
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if review.Response == nil || review.Response.UID != "1" || review.Response.Allowed != tc.allowed {
			t.Errorf("%s: %+v, want allowed: %v", name, review.Response, tc.allowed)
		}
	}
}

func TestTheSchemasAreStructural(t *testing.T) {
	t.Parallel()
	definitions, err := Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		schema, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range unstructural(schema, definition.GetName()) {
			t.Errorf("%s: no type, or a reference", path)
		}
		if diff := cmp.Diff(map[string]any{"type": "object"}, schema["properties"].(map[string]any)["metadata"]); diff != "" {
			t.Errorf("metadata of %s (-want +got):\n%s", definition.GetName(), diff)
		}
	}
}

func unstructural(schema map[string]any, path string) []string {
	var out []string
	if _, found := schema["$ref"]; found || schema["type"] == nil {
		out = append(out, path)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, found := schema[key].(map[string]any); found {
			out = append(out, unstructural(inner, path+"."+key)...)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, inner := range properties {
		out = append(out, unstructural(inner.(map[string]any), path+"."+name)...)
	}
	return out
}
