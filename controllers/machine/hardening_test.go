// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestAMachineSaysWhetherItsKernelIsLockedDown(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	m := s.mustReconcile(machine)
	if meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionHardened) != nil {
		t.Errorf("nothing is asked for, and the machine says %+v", m.Status.Conditions)
	}
	ask := func(mode v1alpha1.KernelLockdown) {
		t.Helper()
		s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Hardening.KernelLockdown = mode })
	}
	boots := func(mode v1alpha1.KernelLockdown) {
		s.machines[machine].Do(func(state *talostest.State) {
			state.Facts.Inventory.UnifiedKernelImage, state.Facts.Inventory.KernelLockdown = true, mode
		})
	}
	boots(v1alpha1.KernelLockdownNone)
	ask(v1alpha1.KernelLockdownIntegrity)
	m = s.mustReconcile(machine)
	wantCondition(t, m, v1alpha1.ConditionHardened, metav1.ConditionFalse, reasonNotLockedDown)
	if says := find(m, v1alpha1.ConditionHardened).Message; !strings.Contains(says, "lockdown=integrity to customization.extraKernelArgs") {
		t.Errorf("it says %q", says)
	}
	if !isTrue(m, v1alpha1.ConditionReady) {
		t.Error("the machine isn't Ready for it")
	}
	assertQuiet(t, s, machine)
	boots(v1alpha1.KernelLockdownConfidentiality)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionHardened, metav1.ConditionTrue, reasonLockedDown)
	ask(v1alpha1.KernelLockdownNone)
	if m = s.mustReconcile(machine); meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionHardened) != nil {
		t.Errorf("nothing is asked for any more, and the machine says %+v", m.Status.Conditions)
	}
}
