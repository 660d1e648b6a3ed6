// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	typed "maesh.dev/ichor/pkg/client/clientset/versioned/typed/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// tuning is a patch for machines of the cluster.
func tuning(name, machine string) *v1alpha1.TalosConfigPatch {
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch.Spec.Target.ClusterRef.Name = "prod"
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(machine)}
	return patch
}

// approved is a world whose machines are approved, the first as a control plane, the others as workers.
func approved(t *testing.T, machines int) *world {
	t.Helper()
	w := newWorld(t, 3, 0)
	var group errgroup.Group
	group.SetLimit(8)
	w.machines = make([]*v1alpha1.TalosMachine, machines)
	for n := range machines {
		group.Go(func() error {
			client := w.controller.IchorV1alpha1().TalosMachines()
			made, err := client.Create(t.Context(), machine(n), metav1.CreateOptions{})
			if err != nil {
				return err
			}
			made.Status = inspected(n)
			made.Status.TalosVersion = "v1.14.5"
			seen, err := client.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
			if err != nil {
				return err
			}
			role := v1alpha1.RoleWorker
			if n == 0 {
				role = v1alpha1.RoleControlPlane
			}
			approval := approve(seen, role)
			approval.Spec.Hostname = fmt.Sprintf("machine-%d", n)
			w.machines[n], err = w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(t.Context(), seen.Name, approval, metav1.UpdateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return w
}

// told is a client of patches, with what the server warns of.
func (w *world) told(t *testing.T, user string) (typed.TalosConfigPatchInterface, *warningList) {
	t.Helper()
	heard := &warningList{}
	config := w.Env.Config(0, user)
	config.WarningHandler = heard
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.IchorV1alpha1().TalosConfigPatches(), heard
}

var tried = []string{metav1.DryRunAll}

// Whoever tries a write is told which machines it would change and which need a reboot, however it is written.
func TestADryRunOfAPatchTellsWhatItWouldDo(t *testing.T) {
	t.Parallel()
	w, ctx := approved(t, 4), testContext(t)
	live, other, late := `{"sysctls":{"vm.swappiness":"1"}}`, `{"sysctls":{"vm.overcommit_memory":"1"}}`, `{"udev":{"rules":["a"]}}`
	workers := tuning("tuning", late)
	workers.Spec.Target.Role = v1alpha1.RoleWorker
	lines := func(count int, how string) []string {
		var all []string
		for _, m := range w.machines[4-count:] {
			all = append(all, "would change "+m.Name+how)
		}
		slices.Sort(all)
		return all
	}
	counted := "would change 4 machines, of which 0 need a reboot; it is for 4 approved ones"
	all := append([]string{counted}, lines(4, ": machine.sysctls")...)
	more := append([]string{counted}, lines(4, `: machine.sysctls["vm.overcommit_memory"]`)...)
	gone := []string{"would change no machine; it is for 4 approved ones"}
	for _, test := range []struct {
		name  string
		write func(typed.TalosConfigPatchInterface) error
		want  []string
	}{
		{"a new one", func(c typed.TalosConfigPatchInterface) error {
			_, err := c.Create(ctx, tuning("new", other), metav1.CreateOptions{DryRun: tried})
			return err
		}, more},
		{"a new one that waits for a reboot, for workers", func(c typed.TalosConfigPatchInterface) error {
			_, err := c.Create(ctx, workers, metav1.CreateOptions{DryRun: tried})
			return err
		}, append([]string{"would change 3 machines, of which 3 need a reboot; it is for 3 approved ones"}, lines(3, ", at a reboot: machine.udev")...)},
		{"applied anew", func(c typed.TalosConfigPatchInterface) error {
			patch := tuning("applied", other)
			patch.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosConfigPatch"}
			body, err := json.Marshal(patch)
			if err != nil {
				return err
			}
			_, err = c.Patch(ctx, "applied", types.ApplyPatchType, body, metav1.PatchOptions{DryRun: tried, FieldManager: "test"})
			return err
		}, more},
		{"one that is there, replaced", func(c typed.TalosConfigPatchInterface) error {
			patch, err := c.Get(ctx, "there", metav1.GetOptions{})
			if err != nil {
				return err
			}
			patch.Spec.Machine.Raw = []byte(`{"sysctls":{"vm.swappiness":"2"}}`)
			_, err = c.Update(ctx, patch, metav1.UpdateOptions{DryRun: tried})
			return err
		}, append([]string{counted}, lines(4, `: machine.sysctls["vm.swappiness"]`)...)},
		{"one that is there, patched", func(c typed.TalosConfigPatchInterface) error {
			_, err := c.Patch(ctx, "there", types.MergePatchType, []byte(`{"spec":{"disabled":true}}`), metav1.PatchOptions{DryRun: tried})
			return err
		}, all},
		{"one that is there, with nothing new", func(c typed.TalosConfigPatchInterface) error {
			_, err := c.Patch(ctx, "there", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: tried})
			return err
		}, nil},
		{"one that is there, with what changes nothing", func(c typed.TalosConfigPatchInterface) error {
			_, err := c.Patch(ctx, "there", types.MergePatchType, []byte(`{"spec":{"priority":7}}`), metav1.PatchOptions{DryRun: tried})
			return err
		}, gone},
		{"one that is there, deleted", func(c typed.TalosConfigPatchInterface) error {
			return c.Delete(ctx, "there", metav1.DeleteOptions{DryRun: tried})
		}, all},
		{"what no machine can have", func(c typed.TalosConfigPatchInterface) error {
			_, err := c.Create(ctx, tuning("wrong", `{"sysctls":{"vm.absent":{"$patch":"delete"}}}`), metav1.CreateOptions{DryRun: tried})
			return err
		}, append(gone, "refused by "+w.machines[0].Name+" and 3 more: spec.machine.sysctls.vm.absent: deletes what isn't there")},
		{"for a cluster that isn't there", func(c typed.TalosConfigPatchInterface) error {
			patch := tuning("elsewhere", live)
			patch.Spec.Target.ClusterRef.Name = "other"
			_, err := c.Create(ctx, patch, metav1.CreateOptions{DryRun: tried})
			return err
		}, []string{"would change no machine: its cluster is not there"}},
		{"a write that isn't only tried", func(c typed.TalosConfigPatchInterface) error {
			_, err := c.Patch(ctx, "there", types.MergePatchType, []byte(`{"spec":{"priority":8}}`), metav1.PatchOptions{})
			return err
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			client, heard := w.told(t, harness.Admin)
			if _, err := client.Get(ctx, "there", metav1.GetOptions{}); apierrors.IsNotFound(err) {
				if _, err := client.Create(ctx, tuning("there", live), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := test.write(client); err != nil {
				t.Fatal(err)
			}
			got := heard.all()
			if slices.Equal(got, []string{lateAnswer}) && len(test.want) > 0 {
				return // a computer that is busy
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			list, err := client.List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Labels) > 0 || string(list.Items[0].Spec.Machine.Raw) != live {
				t.Errorf("what is stored: %v, %v", list, err)
			}
		})
	}
}

// lateAnswer is the one warning where the time didn't suffice.
const lateAnswer = "which machines would change was not computed in time; talosconfigpatches/preview (ichor patch diff) tells"

// A thousand machines are counted, ten of them named, in short lines, or one line says that there was no time.
func TestADryRunOfAPatchForAThousandMachines(t *testing.T) {
	t.Parallel()
	w, ctx := approved(t, 1000), testContext(t)
	client, heard := w.told(t, harness.Admin)
	if _, err := client.Create(ctx, tuning("tuning", `{"sysctls":{"vm.swappiness":"1"},"udev":{"rules":["a"]}}`), metav1.CreateOptions{DryRun: tried}); err != nil {
		t.Fatal(err)
	}
	got := heard.all()
	if !slices.Equal(got, []string{lateAnswer}) {
		if len(got) != 11 || got[0] != "would change 1000 machines, of which 1000 need a reboot; it is for 1000 approved ones" {
			t.Errorf("%d warnings, the first %q; want the count and ten machines", len(got), got[0])
		}
		machine := regexp.MustCompile(`^would change [0-9a-f-]{36}, at a reboot: machine\.udev$`)
		for _, text := range got[1:] {
			if !machine.MatchString(text) {
				t.Errorf("warning %q names no machine", text)
			}
		}
	}
	for _, text := range got {
		if length := utf8.RuneCountInString(text); length > 120 {
			t.Errorf("%d characters: %s", length, text)
		}
	}
	preview, err := w.admin.IchorV1alpha1().TalosConfigPatches().CreatePreview(ctx, "tuning", questionOf(tuning("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.PreviewCounts{Matched: 1000, Changed: 1000}
	if preview.Status.Machines != want || len(preview.Status.Classes) != 1 || preview.Status.Classes[0].Count != 1000 || len(preview.Status.Classes[0].Machines) != 100 {
		t.Errorf("the preview counts %+v in %d classes", preview.Status.Machines, len(preview.Status.Classes))
	}
}

// questionOf is the question what writing a patch would do.
func questionOf(patch *v1alpha1.TalosConfigPatch) *v1alpha1.TalosConfigPatchPreview {
	return &v1alpha1.TalosConfigPatchPreview{Spec: v1alpha1.TalosConfigPatchPreviewSpec{Patch: &patch.Spec}}
}

func TestThePreviewOfAPatch(t *testing.T) {
	t.Parallel()
	w, ctx := approved(t, 4), testContext(t)
	admin, viewer := w.admin.IchorV1alpha1().TalosConfigPatches(), w.Env.Client(t, 0, harness.Viewer).IchorV1alpha1().TalosConfigPatches()
	preview := func(name string, question *v1alpha1.TalosConfigPatchPreview) (*v1alpha1.TalosConfigPatchPreview, error) {
		return viewer.CreatePreview(ctx, name, question, metav1.CreateOptions{})
	}
	patch := tuning("tuning", `{"udev":{"rules":["a"]},"env":{"A":"b"}}`)
	patch.Spec.Target.Role = v1alpha1.RoleWorker
	patch.Spec.SecretValues = []v1alpha1.SecretValue{{Path: "/machine/env/PASSWORD", SecretKeyRef: v1alpha1.SecretKeyReference{Name: "proxy", Key: "password"}}}
	question := questionOf(patch)
	question.Spec.Render = &v1alpha1.PreviewRender{Machine: w.machines[1].Name}
	got, err := preview("tuning", question)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := admin.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Fatalf("a preview stored %d patches, %v", len(list.Items), err)
	}
	if want := (v1alpha1.PreviewCounts{Matched: 3, Changed: 3, NeedReboot: 3}); got.Status.Machines != want || len(got.Status.Classes) != 1 {
		t.Fatalf("got %+v in %d classes, want %+v in one", got.Status.Machines, len(got.Status.Classes), want)
	}
	class := got.Status.Classes[0]
	names := []string{w.machines[1].Name, w.machines[2].Name, w.machines[3].Name}
	if diff := cmp.Diff(names, class.Machines); diff != "" || class.Count != 3 || !class.NeedsReboot {
		t.Errorf("class %+v, machines (-want +got):\n%s", class, diff)
	}
	fields := []v1alpha1.PreviewField{
		{Document: "v1alpha1", Path: "machine.env", Becomes: `{"A":"b","PASSWORD":"***"}`, NeedsReboot: true},
		{Document: "v1alpha1", Path: "machine.udev", Becomes: `{"rules":["a"]}`, NeedsReboot: true},
	}
	if diff := cmp.Diff(fields, class.Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for _, line := range []string{"--- " + names[0] + " now", "+        A: b", "+        rules:"} {
		if !strings.Contains(class.Diff, line+"\n") {
			t.Errorf("the diff has no line %q:\n%s", line, class.Diff)
		}
	}
	if !strings.Contains(got.Status.Configuration, "hostname: machine-1") || !strings.Contains(got.Status.Configuration, "A: b") {
		t.Errorf("the configuration is\n%s", got.Status.Configuration)
	}
	if strings.Contains(class.Diff+got.Status.Configuration, "aWNob3I") {
		t.Error("a placeholder for a secret is shown")
	}
	if got.Name != "tuning" || got.Kind != "TalosConfigPatchPreview" && got.Kind != "" || len(got.ManagedFields) > 0 {
		t.Errorf("the answer is %s %s with managed fields %v", got.Kind, got.Name, got.ManagedFields)
	}

	if _, err := admin.Create(ctx, patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := &v1alpha1.TalosConfigPatchPreview{Spec: v1alpha1.TalosConfigPatchPreviewSpec{Change: v1alpha1.PatchDelete}}
	if got, err := preview("tuning", deleted); err != nil || got.Status.Machines.Changed != 3 || !strings.Contains(got.Status.Classes[0].Diff, "-        A: b\n") {
		t.Errorf("what deleting would do: %+v, %v", got, err)
	}
	if _, err := admin.Get(ctx, "tuning", metav1.GetOptions{}); err != nil {
		t.Errorf("the preview of a deletion deleted: %v", err)
	}
	if _, err := preview("absent", deleted); !apierrors.IsNotFound(err) {
		t.Errorf("what deleting a patch would do that isn't there: %v", err)
	}
	same := questionOf(patch)
	if got, err := preview("tuning", same); err != nil || got.Status.Machines != (v1alpha1.PreviewCounts{Matched: 3}) {
		t.Errorf("what writing the same would do: %+v, %v", got.Status, err)
	}
	same.Spec.Patch.SecretValues[0].SecretKeyRef.Key = "other"
	if got, err := preview("tuning", same); err != nil || len(got.Status.Warnings) != 1 || !strings.Contains(got.Status.Warnings[0], "not compared") {
		t.Errorf("a value from another Secret: %v, %v", got.Status.Warnings, err)
	}
	wrong := questionOf(tuning("wrong", `{"sysctls":{"vm.absent":{"$patch":"delete"}}}`))
	got, err = preview("wrong", wrong)
	if err != nil {
		t.Fatal(err)
	}
	refusal := []v1alpha1.PreviewRefusal{{
		Count: 4, Machines: append([]string{w.machines[0].Name}, names...), Patch: "wrong", Path: "spec.machine.sysctls.vm.absent", Reason: "deletes what isn't there",
	}}
	if diff := cmp.Diff(refusal, got.Status.Refusals); diff != "" || got.Status.Machines.Refused != 4 {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	wrong.Spec.Render = &v1alpha1.PreviewRender{Machine: names[0]}
	if _, err := preview("wrong", wrong); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "spec.machine.sysctls.vm.absent") {
		t.Errorf("the configuration with a patch that is refused: %v", err)
	}
}

// What couldn't be written can't be asked about: the refusal is the same, field by field.
func TestAPreviewIsRefusedAsTheWriteIs(t *testing.T) {
	t.Parallel()
	w, ctx := approved(t, 1), testContext(t)
	client := w.admin.IchorV1alpha1().TalosConfigPatches()
	if _, err := client.Create(ctx, tuning("there", `{"sysctls":{"a":"1"}}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	causes := func(err error) []metav1.StatusCause {
		t.Helper()
		var status *apierrors.StatusError
		if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
			t.Fatalf("got %v, want a 422", err)
		}
		return status.ErrStatus.Details.Causes
	}
	for _, machine := range []string{
		`{"sysctl":{"a":"1"}}`, `{"token":"abc"}`, `{"type":"worker"}`, `{"install":{"image":"x"}}`, `{"sysctls":{"a":1}}`, `{}`,
	} {
		patch := tuning("new", machine)
		_, write := client.Create(ctx, patch, metav1.CreateOptions{DryRun: tried})
		if write == nil {
			continue // what Talos takes today
		}
		_, ask := client.CreatePreview(ctx, "new", questionOf(patch), metav1.CreateOptions{})
		if diff := cmp.Diff(causes(write), causes(ask)); diff != "" || write.Error() != ask.Error() {
			t.Errorf("%s: (-write +preview):\n%s\n%v\n%v", machine, diff, write, ask)
		}
	}
	moved := tuning("there", `{"sysctls":{"a":"1"}}`)
	moved.Spec.Target.ClusterRef.Name = "other"
	stored, err := client.Get(ctx, "there", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	moved.ResourceVersion = stored.ResourceVersion
	_, write := client.Update(ctx, moved, metav1.UpdateOptions{DryRun: tried})
	_, ask := client.CreatePreview(ctx, "there", questionOf(moved), metav1.CreateOptions{})
	if diff := cmp.Diff(causes(write), causes(ask)); diff != "" {
		t.Errorf("another cluster: (-write +preview):\n%s", diff)
	}
	for name, question := range map[string]v1alpha1.TalosConfigPatchPreviewSpec{
		"spec.patch":          {},
		"spec.change":         {Change: "Try", Patch: &moved.Spec},
		"spec.render.machine": {Patch: &stored.Spec, Render: &v1alpha1.PreviewRender{}},
	} {
		_, err := client.CreatePreview(ctx, "there", &v1alpha1.TalosConfigPatchPreview{Spec: question}, metav1.CreateOptions{})
		if got := causes(err); len(got) != 1 || got[0].Field != name {
			t.Errorf("%s: causes %v", name, got)
		}
	}
	other := questionOf(stored)
	other.Name = "other"
	if _, err := client.CreatePreview(ctx, "there", other, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a question about another patch than the path says: %v", err)
	}
}

// A preview shows a part of machines' configurations, so it takes the right to read them too.
func TestAPreviewNeedsTheRightToReadConfigurations(t *testing.T) {
	t.Parallel()
	w, ctx := approved(t, 1), testContext(t)
	patch := tuning("tuning", `{"sysctls":{"a":"1"}}`)
	if _, err := w.Env.Client(t, 0, "nobody").IchorV1alpha1().TalosConfigPatches().CreatePreview(ctx, "tuning", questionOf(patch), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("who has no rights: %v", err)
	}
	_, err := w.Env.Client(t, 0, harness.Patcher).IchorV1alpha1().TalosConfigPatches().CreatePreview(ctx, "tuning", questionOf(patch), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"get" on talosmachines/config`) {
		t.Errorf("who may ask, and may not read configurations: %v", err)
	}
	client, heard := w.told(t, harness.Patcher)
	if _, err := client.Create(ctx, patch, metav1.CreateOptions{DryRun: tried}); err != nil {
		t.Fatal(err)
	}
	want := []string{"which machines would change is told to who may get talosmachines/config only"}
	if diff := cmp.Diff(want, heard.all()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
