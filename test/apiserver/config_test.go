// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// What a machine is to have is shown as it would be rendered, to whoever may only look, and without a secret.
func TestTheConfigurationOfAMachine(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 2), testContext(t)
	admin, viewer := w.Env.Client(t, 0, harness.Admin).IchorV1alpha1(), w.Env.Client(t, 0, harness.Viewer).IchorV1alpha1()
	config := func(name, query string) (*v1alpha1.TalosMachineConfig, error) {
		var got v1alpha1.TalosMachineConfig
		request := viewer.RESTClient().Get().AbsPath(group+"/talosmachines/"+name+"/config").Param("provenance", query)
		return &got, request.Do(ctx).Into(&got)
	}
	name := w.machines[0].Name
	if _, err := config(name, "false"); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "nothing is decided about the machine yet") {
		t.Errorf("a machine that nobody approved: %v", err)
	}
	approval := approve(w.machines[0], v1alpha1.RoleWorker)
	approval.Spec.Hostname = "worker-1"
	if _, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, name, approval, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "tuning"}}
	patch.Spec.Target.ClusterRef.Name = "prod"
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(`{"sysctls":{"vm.swappiness":"1"},"env":{"A":"b"}}`)}
	patch.Spec.SecretValues = []v1alpha1.SecretValue{{Path: "/machine/env/PASSWORD", SecretKeyRef: v1alpha1.SecretKeyReference{Name: "proxy", Key: "password"}}}
	if _, err := admin.TalosConfigPatches().Create(ctx, patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := config(name, "true")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`vm.swappiness: "1"`, "hostname: worker-1", "type: worker", "PASSWORD: '***'", "token: '***'"} {
		if !strings.Contains(strings.ReplaceAll(got.Text, `"***"`, "'***'"), strings.ReplaceAll(part, `"***"`, "'***'")) {
			t.Errorf("the configuration has no %s", part)
		}
	}
	if got.Name != name || len(got.Patches) != 1 || got.Patches[0].Name != "tuning" {
		t.Errorf("it is %s's with the patches %v", got.Name, got.Patches)
	}
	set := func(path, by, patch string) {
		t.Helper()
		if !slices.ContainsFunc(got.Provenance, func(field v1alpha1.FieldProvenance) bool {
			return field.Path == path && field.SetBy == by && field.Patch == patch
		}) {
			t.Errorf("nobody says that %s was set by %s %s", path, by, patch)
		}
	}
	set(`machine.sysctls["vm.swappiness"]`, "patch", "tuning")
	set("hostname", "approval", "")
	set("machine.type", "base", "")
	if without, err := config(name, "false"); err != nil || len(without.Provenance) > 0 || without.Text != got.Text {
		t.Errorf("without provenance: %d fields, %v", len(without.Provenance), err)
	}
	if err := w.Env.Client(t, 0, "nobody").IchorV1alpha1().RESTClient().Get().AbsPath(group + "/talosmachines/" + name + "/config").Do(ctx).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("who has no rights: %v", err)
	}
	patch.Name, patch.Spec.SecretValues = "wrong", nil
	patch.Spec.Machine.Raw = []byte(`{"sysctls":{"vm.absent":{"$patch":"delete"}}}`)
	if _, err := admin.TalosConfigPatches().Create(ctx, patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := config(name, "false"); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "patch wrong: spec.machine.sysctls.vm.absent: deletes what isn't there") {
		t.Errorf("a patch that the machine can't have: %v", err)
	}
}

func TestTheDriftOfAMachine(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 3, 1), testContext(t)
	name := w.machines[0].Name
	drift := func() *v1alpha1.TalosMachineDrift {
		t.Helper()
		var got v1alpha1.TalosMachineDrift
		if err := w.Env.Client(t, 0, harness.Viewer).IchorV1alpha1().RESTClient().Get().AbsPath(group + "/talosmachines/" + name + "/drift").Do(ctx).Into(&got); err != nil {
			t.Fatal(err)
		}
		return &got
	}
	if got := drift(); got.State != "Unknown" || got.Message == "" {
		t.Errorf("before anything was read: %+v", got)
	}
	controller := w.Env.Client(t, 0, harness.Controller).IchorV1alpha1().TalosMachines()
	machine, err := controller.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	machine.Status.Config = &v1alpha1.MachineConfigStatus{DriftCount: 1, Drift: []v1alpha1.ConfigDrift{{Document: "v1alpha1", Path: "machine.certSANs[0]", Want: "a", Have: "b"}}}
	machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDriftDetected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDrifted, Message: "1 place differs", LastTransitionTime: metav1.Now(),
	})
	if _, err := controller.UpdateStatus(ctx, machine, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := drift(); got.State != "Drifted" || got.Count != 1 || len(got.Items) != 1 || got.Items[0].Have != "b" || got.Message != "1 place differs" {
		t.Errorf("got %+v", got)
	}
}
