// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// forgedApprovals lets somebody with every right on machines but the verb approve try all writers.
func forgedApprovals(t *testing.T, s *suite) {
	s.grant(t, "mallory", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName},
		Resources: []string{"talosmachines", "talosmachines/status", "talosmachines/approval", "talosmachines/identity"},
		Verbs:     []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	})
	impersonated := s.stack.Admin()
	impersonated.Impersonate = rest.ImpersonationConfig{UserName: "mallory"}
	mallory := client(t, impersonated).IchorV1alpha1().TalosMachines()
	m := s.take(t, 1)[0]
	decided := s.decided(t, s.get(t, m.Name), v1alpha1.RoleWorker, "forged")
	merge := []byte(`{"spec":{"approvalState":"approved","role":"worker","approval":{"by":"alice","maintenanceFingerprint":"` + m.Status.MaintenanceFingerprint + `"}}}`)
	apply := s.applyConfiguration(t, decided)
	force := true

	writers := []struct {
		name      string
		forbidden bool
		write     func() error
	}{
		{"update", false, func() error {
			fresh := decided.DeepCopy()
			fresh.ResourceVersion = ""
			_, err := mallory.Update(t.Context(), fresh, metav1.UpdateOptions{})
			return err
		}},
		{"JSON merge patch", false, func() error {
			_, err := mallory.Patch(t.Context(), m.Name, types.MergePatchType, merge, metav1.PatchOptions{})
			return err
		}},
		{"JSON patch", false, func() error {
			patch := []byte(`[{"op":"add","path":"/spec/approvalState","value":"approved"},{"op":"add","path":"/spec/role","value":"worker"}]`)
			_, err := mallory.Patch(t.Context(), m.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
			return err
		}},
		{"server-side apply with force", false, func() error {
			_, err := mallory.Patch(t.Context(), m.Name, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "mallory", Force: &force})
			return err
		}},
		{"status", false, func() error {
			_, err := mallory.Patch(t.Context(), m.Name, types.MergePatchType, merge, metav1.PatchOptions{}, "status")
			return err
		}},
		{"approval without the verb, patch", true, func() error {
			_, err := mallory.Patch(t.Context(), m.Name, types.MergePatchType, merge, metav1.PatchOptions{}, "approval")
			return err
		}},
		{"approval without the verb, update", true, func() error {
			fresh := s.decided(t, s.get(t, m.Name), v1alpha1.RoleWorker, "forged")
			_, err := mallory.UpdateApproval(t.Context(), m.Name, fresh, metav1.UpdateOptions{})
			return err
		}},
		{"approval without the verb, server-side apply", true, func() error {
			_, err := mallory.Patch(t.Context(), m.Name, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "mallory", Force: &force}, "approval")
			return err
		}},
		{"identity without the verb", true, func() error {
			patch := []byte(`{"spec":{"approvalState":"approved","identityResolution":{"decision":"Distinct"}}}`)
			_, err := mallory.Patch(t.Context(), m.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "identity")
			return err
		}},
	}
	for _, writer := range writers {
		t.Run(writer.name, func(t *testing.T) {
			err := writer.write()
			if writer.forbidden && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), v1alpha1.VerbApprove)) {
				t.Errorf("answer %v, want 403 that names the verb %s", err, v1alpha1.VerbApprove)
			}
			s.expectPending(t, m.Name)
		})
	}
	t.Run("create", func(t *testing.T) {
		const name = "9d3f3f64-7d5a-4a51-9c59-0a7c5b1f2e01"
		_, err := mallory.Create(t.Context(), &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.TalosMachineSpec{
				ClusterRef: decided.Spec.ClusterRef, ApprovalState: v1alpha1.ApprovalApproved, Role: v1alpha1.RoleWorker,
				Identity: v1alpha1.MachineIdentity{UUID: name, SerialNumber: "F1", MACAddresses: []string{"02:00:5e:00:53:f1"}},
				Approval: &v1alpha1.MachineApproval{By: "alice", MaintenanceFingerprint: m.Status.MaintenanceFingerprint},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			if apierrors.IsInternalError(err) {
				t.Error(err)
			}
			return
		}
		s.expectPending(t, name)
		if err := mallory.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func (s *suite) expectPending(t *testing.T, name string) {
	t.Helper()
	if m := s.get(t, name); m.Spec.ApprovalState != v1alpha1.ApprovalPending || m.Spec.Approval != nil || m.Spec.Role != "" {
		t.Errorf("machine %s: state %s, approval %+v, role %q; want it pending", name, m.Spec.ApprovalState, m.Spec.Approval, m.Spec.Role)
	}
}

// applyConfiguration is what server-side apply sends to approve a machine.
func (s *suite) applyConfiguration(t *testing.T, decided *v1alpha1.TalosMachine) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "TalosMachine", "metadata": map[string]any{"name": decided.Name},
		"spec": map[string]any{
			"clusterRef": decided.Spec.ClusterRef, "identity": decided.Spec.Identity, "approvalState": decided.Spec.ApprovalState,
			"approval": decided.Spec.Approval, "role": decided.Spec.Role, "hostname": decided.Spec.Hostname, "disks": decided.Spec.Disks,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// grant binds a user to a role of these rules.
func (s *suite) grant(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := "e2e-" + user
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := s.kubernetes.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.bind(t, user, name)
}

// bind binds a user to a role that is there.
func (s *suite) bind(t *testing.T, user, role string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := s.kubernetes.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mutatingPolicy has the cluster change the role in an approval on its way. What was judged is not what would be
// stored, so it is refused.
func mutatingPolicy(t *testing.T, s *suite) {
	m := s.take(t, 1)[0]
	s.hold(t, m.Name)
	decided := s.decided(t, s.get(t, m.Name), v1alpha1.RoleWorker, "flipped")
	remove := s.flipRole(t)
	s.everyServerAnswers(t, decided, func(err error) error {
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("it answers a dry run with %v, want 403", err)
		}
		return nil
	})
	if err := patchApproval(t.Context(), s.operator, decided); !apierrors.IsForbidden(err) {
		t.Errorf("answer %v, want 403", err)
	}
	s.expectPending(t, m.Name)
	for _, slot := range s.cluster(t).Status.ControlPlaneSlots {
		if slot.MachineUID == m.UID {
			t.Errorf("the worker holds a slot of a control plane: %+v", slot)
		}
	}
	remove()
	s.everyServerAnswers(t, decided, func(err error) error { return err })
}

// everyServerAnswers waits until a dry run of an approval ends as wanted at every API server: each learns of a policy in
// its own time.
func (s *suite) everyServerAnswers(t *testing.T, decided *v1alpha1.TalosMachine, wanted func(error) error) {
	t.Helper()
	for n := range s.stack.Replicas() {
		direct := client(t, s.stack.Direct(person(t, s.stack, "operator"), n))
		eventually(t, time.Minute, func() error {
			if err := wanted(patchApproval(t.Context(), direct, decided, metav1.DryRunAll)); err != nil {
				return fmt.Errorf("ichor-apiserver %d: %w", n+1, err)
			}
			return nil
		})
	}
}

// flipRole makes a policy that turns every approved worker into a control plane; it is removed by the returned function,
// or when the story ends.
func (s *suite) flipRole(t *testing.T) (remove func()) {
	t.Helper()
	const name = "e2e-flip-role"
	fail, never := admissionv1.Fail, admissionv1.NeverReinvocationPolicy
	equivalent := admissionv1.Equivalent
	policies, bindings := s.kubernetes.AdmissionregistrationV1().MutatingAdmissionPolicies(), s.kubernetes.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	_, err := policies.Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy: &fail, ReinvocationPolicy: never,
			MatchConstraints: &admissionv1.MatchResources{MatchPolicy: &equivalent, ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"v1alpha1"}, Resources: []string{"talosmachines/approval"},
					},
				},
			}}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/role", value: "controlplane"}]`},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bindings.Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound(10*time.Second)) // the story's own may have ended
		defer cancel()
		err := errors.Join(bindings.Delete(ctx, name, metav1.DeleteOptions{}), policies.Delete(ctx, name, metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(remove)
	return remove
}
