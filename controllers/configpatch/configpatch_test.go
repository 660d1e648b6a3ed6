// SPDX-License-Identifier: Apache-2.0

package configpatch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func machine(name string, changes ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, ApprovalState: v1alpha1.ApprovalApproved, Role: v1alpha1.RoleWorker,
		},
		Status: v1alpha1.TalosMachineStatus{Config: &v1alpha1.MachineConfigStatus{AppliedHash: "x"}},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

// runs puts patches into what a machine runs, each as NAME or NAME@GENERATION.
func runs(patches ...string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		for _, patch := range patches {
			generation := int64(1)
			name, number, found := strings.Cut(patch, "@")
			if found {
				_, _ = fmt.Sscan(number, &generation)
			}
			m.Status.Config.Patches = append(m.Status.Config.Patches, v1alpha1.ConfigInput{Name: name, Generation: generation})
		}
	}
}

func refuses(patch string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		m.Status.Config.Refused = &v1alpha1.RefusedPatch{Name: patch, Path: "spec.machine.sysctls.x", Reason: "deletes what isn't there"}
	}
}

func waits(m *v1alpha1.TalosMachine) { m.Status.Config.PendingReboot = true }

func patch(name, section string, changes ...func(*v1alpha1.TalosConfigPatch)) *v1alpha1.TalosConfigPatch {
	p := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
	p.Spec.Target.ClusterRef.Name = "prod"
	p.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(section)}
	for _, change := range changes {
		change(p)
	}
	return p
}

func TestHowFarAPatchHasCome(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change   func(*v1alpha1.TalosConfigPatch)
		machines []*v1alpha1.TalosMachine
		counts   v1alpha1.PatchCounts
		ready    metav1.ConditionStatus
		reason   string
		words    []string
	}{
		"no machine":           {ready: metav1.ConditionTrue, reason: reasonNoMachines, words: []string{"no approved machines of cluster prod"}},
		"everywhere":           {machines: []*v1alpha1.TalosMachine{machine("a", runs("p")), machine("b", runs("o", "p"))}, counts: v1alpha1.PatchCounts{Matched: 2, Applied: 2}, ready: metav1.ConditionTrue, reason: reasonApplied},
		"its old generation":   {machines: []*v1alpha1.TalosMachine{machine("a", runs("p@7")), machine("b", runs("p"))}, counts: v1alpha1.PatchCounts{Matched: 2, Applied: 1}, ready: metav1.ConditionFalse, reason: reasonProgressing, words: []string{"1 of 2"}},
		"a reboot is needed":   {machines: []*v1alpha1.TalosMachine{machine("a", runs("p")), machine("b", waits)}, counts: v1alpha1.PatchCounts{Matched: 2, Applied: 1, PendingReboot: 1}, ready: metav1.ConditionFalse, reason: v1alpha1.ReasonPendingReboot, words: []string{"configRollout"}},
		"refused":              {machines: []*v1alpha1.TalosMachine{machine("a", runs("p")), machine("b", refuses("p"))}, counts: v1alpha1.PatchCounts{Matched: 2, Applied: 1, Refused: 1}, ready: metav1.ConditionFalse, reason: v1alpha1.ReasonPatchRefused, words: []string{"b: spec.machine.sysctls.x: deletes what isn't there"}},
		"another one, refused": {machines: []*v1alpha1.TalosMachine{machine("a", runs("p"), refuses("other"))}, counts: v1alpha1.PatchCounts{Matched: 1, Applied: 1}, ready: metav1.ConditionTrue, reason: reasonApplied},
		"disabled":             {change: func(p *v1alpha1.TalosConfigPatch) { p.Spec.Disabled = true }, machines: []*v1alpha1.TalosMachine{machine("a")}, counts: v1alpha1.PatchCounts{Matched: 1}, ready: metav1.ConditionTrue, reason: reasonDisabled},
		"machines that don't count": {machines: []*v1alpha1.TalosMachine{
			machine("a", func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalPending }),
			machine("b", func(m *v1alpha1.TalosMachine) { m.DeletionTimestamp = ptr.To(metav1.Now()) }),
			machine("c", func(m *v1alpha1.TalosMachine) { m.Spec.ClusterRef.Name = "other" }),
		}, ready: metav1.ConditionTrue, reason: reasonNoMachines},
		"not configured yet": {machines: []*v1alpha1.TalosMachine{machine("a", func(m *v1alpha1.TalosMachine) { m.Status.Config = nil })}, counts: v1alpha1.PatchCounts{Matched: 1}, ready: metav1.ConditionFalse, reason: reasonProgressing},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := patch("p", `{"sysctls":{"x":"1"}}`)
			if c.change != nil {
				c.change(p)
			}
			status := summarize(p, c.machines, nil)
			if diff := cmp.Diff(c.counts, status.Machines); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if condition.Status != c.ready || condition.Reason != c.reason || condition.ObservedGeneration != 1 || status.ObservedGeneration != 1 {
				t.Errorf("Ready is %+v, want %s (%s)", condition, c.ready, c.reason)
			}
			for _, word := range c.words {
				if !strings.Contains(condition.Message, word) {
					t.Errorf("%q doesn't say %q", condition.Message, word)
				}
			}
		})
	}
}

func TestRefusalsAreListedByName(t *testing.T) {
	t.Parallel()
	var machines []*v1alpha1.TalosMachine
	for i := range 40 {
		machines = append(machines, machine(fmt.Sprintf("m%02d", 39-i), refuses("p")))
	}
	status := summarize(patch("p", `{}`), machines, nil)
	if len(status.Refusals) != maxRefusals || status.Refusals[0].Machine != "m00" || status.Machines.Refused != 40 {
		t.Errorf("%d are listed from %s, %d counted", len(status.Refusals), status.Refusals[0].Machine, status.Machines.Refused)
	}
}

// The controller as it runs: two patches that disagree both say so, until one of them is changed.
func TestPatchesThatDisagreeBothSaySo(t *testing.T) {
	t.Parallel()
	a, b := patch("a", `{"sysctls":{"x":"1"}}`), patch("b", `{"sysctls":{"x":"2"}}`)
	elsewhere := patch("c", `{"sysctls":{"x":"3"}}`, func(p *v1alpha1.TalosConfigPatch) { p.Spec.Target.Role = v1alpha1.RoleControlPlane })
	client := fake.NewSimpleClientset(machine("m", runs("a", "b")))
	for _, p := range []*v1alpha1.TalosConfigPatch{a, b, elsewhere} {
		if _, err := client.IchorV1alpha1().TalosConfigPatches().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	factory := externalversions.NewSharedInformerFactory(client, 0)
	controller, err := New(Config{Client: client, Patches: factory.Ichor().V1alpha1().TalosConfigPatches(), Machines: factory.Ichor().V1alpha1().TalosMachines()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}()
	says := func(name string, status metav1.ConditionStatus, words string) {
		t.Helper()
		var last string
		err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			p, err := client.IchorV1alpha1().TalosConfigPatches().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			condition := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionConflicting)
			last = fmt.Sprint(condition)
			return condition != nil && condition.Status == status && strings.Contains(condition.Message, words), nil
		})
		if err != nil {
			t.Fatalf("%s: %v, its condition is %s", name, err, last)
		}
	}
	says("a", metav1.ConditionTrue, "machine.sysctls.x is set by patch b, which is merged later")
	says("b", metav1.ConditionTrue, "machine.sysctls.x, which patch a sets to something else, is set by this one")
	says("c", metav1.ConditionFalse, "no other patch")
	b = b.DeepCopy()
	b.Generation, b.Spec.Machine.Raw = 2, []byte(`{"sysctls":{"x":"1"}}`)
	if _, err := client.IchorV1alpha1().TalosConfigPatches().Update(ctx, b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	says("a", metav1.ConditionFalse, "no other patch")
}
