// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

// forgery is one way to try to have a machine approved.
type forgery struct {
	name string
	try  func(ctx context.Context, client *versioned.Clientset, seen *v1alpha1.TalosMachine) error
	// refused: the request fails with a 403 that names the verb. Otherwise it may succeed, without approving.
	refused bool
}

func forgeries() []forgery {
	force := metav1.PatchOptions{FieldManager: "forger", Force: ptr.To(true)}
	forger := metav1.PatchOptions{FieldManager: "forger"}
	mergePatch := []byte(fmt.Sprintf(`{"spec":{"approvalState":"approved","role":"controlplane","approval":{"by":"nobody","maintenanceFingerprint":%q},"disks":[{"match":{"serial":"S1"},"role":"system"}]}}`, fingerprintOf(0, 0)))
	jsonPatch := []byte(`[{"op":"replace","path":"/spec/approvalState","value":"approved"},{"op":"add","path":"/spec/role","value":"controlplane"}]`)
	var all []forgery
	for _, subresource := range []string{"", "status", "identity", "finalize", "approval"} {
		var path []string
		door := "the main resource"
		if subresource != "" {
			path, door = []string{subresource}, subresource
		}
		refused := subresource == "approval" || subresource == "identity"
		patch := func(kind types.PatchType, body func(*v1alpha1.TalosMachine) []byte, options metav1.PatchOptions) func(context.Context, *versioned.Clientset, *v1alpha1.TalosMachine) error {
			return func(ctx context.Context, client *versioned.Clientset, seen *v1alpha1.TalosMachine) error {
				_, err := client.IchorV1alpha1().TalosMachines().Patch(ctx, seen.Name, kind, body(seen), options, path...)
				return err
			}
		}
		all = append(all,
			forgery{"JSON merge patch of " + door, patch(types.MergePatchType, func(*v1alpha1.TalosMachine) []byte { return mergePatch }, forger), refused},
			forgery{"JSON patch of " + door, patch(types.JSONPatchType, func(*v1alpha1.TalosMachine) []byte { return jsonPatch }, forger), refused},
			forgery{"server-side apply with force to " + door, patch(types.ApplyPatchType, applied, force), refused},
			forgery{"update of " + door, func(ctx context.Context, client *versioned.Clientset, seen *v1alpha1.TalosMachine) error {
				body := approve(seen, v1alpha1.RoleControlPlane)
				body.Spec.IdentityResolution = &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentityDistinct}
				return client.IchorV1alpha1().RESTClient().Put().Resource("talosmachines").Name(seen.Name).SubResource(path...).Body(body).Do(ctx).Error()
			}, refused},
		)
	}
	return all
}

// applied is the approval as an apply configuration.
func applied(seen *v1alpha1.TalosMachine) []byte {
	body := approve(seen, v1alpha1.RoleControlPlane)
	body.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosMachine"}
	body.ManagedFields, body.ResourceVersion = nil, ""
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // API types always encode
	}
	return text
}

func TestNobodyForgesAnApproval(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	for _, user := range []string{harness.Writer, harness.Controller, harness.Viewer, harness.ApproverOfOne + "another"} {
		client := w.Client(t, 0, user)
		for _, f := range forgeries() {
			t.Run(user+"/"+f.name, func(t *testing.T) {
				seen, err := w.admin.IchorV1alpha1().TalosMachines().Get(ctx, machineUUID(0), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				err = f.try(ctx, client, seen)
				writes := user == harness.Writer || strings.HasPrefix(user, harness.ApproverOfOne)
				if f.refused && (!apierrors.IsForbidden(err) || writes && !strings.Contains(err.Error(), `needs the verb "approve" on talosmachines/approval`)) {
					t.Errorf("%v; want a 403 that names the verb", err)
				}
				w.stillPending(t, 0)
			})
		}
	}
	t.Run("create", func(t *testing.T) {
		forged := approve(machine(1), v1alpha1.RoleControlPlane)
		forged.Spec.Approval.By = "somebody"
		made, err := w.writer.IchorV1alpha1().TalosMachines().Create(ctx, forged, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.Spec.ApprovalState != v1alpha1.ApprovalPending || made.Spec.Approval != nil || made.Spec.Role != "" || len(made.Spec.Disks) > 0 {
			t.Errorf("created: %+v", made.Spec)
		}
	})
	t.Run("create by server-side apply", func(t *testing.T) {
		made, err := w.writer.IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(2), types.ApplyPatchType, applied(machine(2)), metav1.PatchOptions{FieldManager: "forger", Force: ptr.To(true)})
		if err != nil {
			t.Fatal(err)
		}
		if made.Spec.ApprovalState != v1alpha1.ApprovalPending || made.Spec.Approval != nil || made.Spec.Role != "" {
			t.Errorf("created: %+v", made.Spec)
		}
	})
	t.Run("slots in the cluster's status", func(t *testing.T) {
		cluster, err := w.admin.IchorV1alpha1().TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cluster.Status.ControlPlaneSlots = []v1alpha1.ControlPlaneSlot{{MachineUID: "x", Name: "x", Token: "x", At: metav1.Now()}}
		cluster.Status.ControlPlanes = v1alpha1.ControlPlaneCounts{Approved: 9, Limit: 99, Ready: 1}
		cluster.Spec.ControlPlane.Count = 9
		written, err := w.writer.IchorV1alpha1().TalosClusters().UpdateStatus(ctx, cluster, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := written.Status.ControlPlanes; len(written.Status.ControlPlaneSlots) != 0 || got.Approved != 0 || got.Limit != 4 || got.Ready != 1 || written.Spec.ControlPlane.Count != 3 {
			t.Errorf("status writer reached slots, counts or spec: %+v", written.Status)
		}
	})
}

// stillPending checks that the nth machine is pending and nobody holds a slot.
func (w *world) stillPending(t *testing.T, n int) {
	t.Helper()
	ctx := testContext(t)
	got, err := w.admin.IchorV1alpha1().TalosMachines().Get(ctx, machineUUID(n), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Spec; s.ApprovalState != v1alpha1.ApprovalPending || s.Approval != nil || s.Role != "" || len(s.Disks) > 0 || s.IdentityResolution != nil {
		t.Errorf("machine after the attempt: state %q, approval %+v, role %q, disks %v", s.ApprovalState, s.Approval, s.Role, s.Disks)
	}
	w.slotsAre(t)
}

// slotsAre checks who holds slots.
func (w *world) slotsAre(t *testing.T, machines ...string) {
	t.Helper()
	cluster, err := w.admin.IchorV1alpha1().TalosClusters().Get(testContext(t), "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for _, slot := range cluster.Status.ControlPlaneSlots {
		held[slot.Name] = true
	}
	for _, name := range machines {
		if !held[name] {
			t.Errorf("machine %s holds no slot", name)
		}
		delete(held, name)
	}
	if len(held) > 0 {
		t.Errorf("slots held beside %v: %v", machines, held)
	}
}

// flip is a policy of the host cluster that changes approvals.
func flip(expression string) []harness.Option {
	rules := []any{map[string]any{
		"apiGroups": []string{"ichor.maesh.dev"}, "apiVersions": []string{"*"}, "operations": []string{"UPDATE"},
		"resources": []string{"talosmachines/approval"}, "scope": "*",
	}}
	meta := func(name string) map[string]any {
		return map[string]any{"name": name, "uid": name, "resourceVersion": "1", "generation": 1}
	}
	return []harness.Option{
		harness.Policies("mutatingadmissionpolicies", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": meta("flip"),
			"spec": map[string]any{
				"failurePolicy": "Fail", "reinvocationPolicy": "Never",
				"matchConstraints": map[string]any{"resourceRules": rules, "matchPolicy": "Exact", "namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}},
				"mutations":        []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": expression}}},
			},
		}),
		harness.Policies("mutatingadmissionpolicybindings", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": meta("flip"),
			"spec": map[string]any{"policyName": "flip"},
		}),
	}
}

func TestAdmissionDoesntDecide(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		expression string
		ask        func(*v1alpha1.TalosMachine) *v1alpha1.TalosMachine
		field      string
	}{
		"a worker becomes a control plane": {
			`[JSONPatch{op: "replace", path: "/spec/role", value: "controlplane"}]`,
			func(m *v1alpha1.TalosMachine) *v1alpha1.TalosMachine { return approve(m, v1alpha1.RoleWorker) }, "spec.role",
		},
		"a rejected machine becomes approved": {
			`[JSONPatch{op: "replace", path: "/spec/approvalState", value: "approved"}]`,
			func(m *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
				m = approve(m, v1alpha1.RoleControlPlane)
				m.Spec.ApprovalState = v1alpha1.ApprovalRejected
				return m
			}, "spec.approvalState",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, ctx := newWorld(t, 3, 1, flip(tc.expression)...), testContext(t)
			body := tc.ask(w.machines[0])
			var err error
			eventually(t, "the server has the schema that policies are applied with", func() bool {
				_, err = w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, body.Name, body, metav1.UpdateOptions{})
				return err == nil || !strings.Contains(err.Error(), "There can be a delay")
			})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "admission changed "+tc.field) {
				t.Errorf("update: %v; want a 403 that says what admission changed", err)
			}
			patch := fmt.Sprintf(`{"spec":{"approvalState":%q,"role":%q,"approval":{"maintenanceFingerprint":%q},"disks":[{"match":{"serial":"S1"},"role":"system"}]}}`,
				body.Spec.ApprovalState, body.Spec.Role, fingerprintOf(0, 0))
			_, err = w.approver.IchorV1alpha1().TalosMachines().Patch(ctx, body.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "approval")
			if !apierrors.IsForbidden(err) {
				t.Errorf("patch: %v; want a 403", err)
			}
			w.stillPending(t, 0)
		})
	}
}
