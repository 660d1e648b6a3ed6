// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
)

// severalReasons gives two control planes several reasons to go down at once: a patch that waits for a reboot of one, a person
// who wants that one rebooted, and another who wants the other. By the machines' own logs each goes down as often as there is a
// reason, and never while the other is down.
func severalReasons(t *testing.T, s *suite) {
	planes := []*v1alpha1.TalosMachine{s.newcomer(t, cpLater), s.newcomer(t, cpOlder)}
	before := map[string]int{}
	for _, m := range planes {
		before[m.Name] = len(s.deeds(t, m))
	}
	patches, operations := s.admin.IchorV1alpha1().TalosConfigPatches(), s.operator.IchorV1alpha1().TalosOperations()
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "udev-planes"}}
	patch.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, MachineNames: names(planes[:1])}
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(`{"udev":{"rules":["SUBSYSTEM==\"rtc\""]}}`)}
	if _, err := patches.Create(t.Context(), patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitPending(t, planes[:1])
	for name, about := range map[string][]*v1alpha1.TalosMachine{"reason-patch": planes[:1], "reason-anna": planes[:1], "reason-otto": planes[1:]} {
		operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: name}}
		operation.Spec.ClusterRef.Name = localstack.ClusterName
		operation.Spec.Machines = &v1alpha1.OperationMachines{Names: names(about)}
		if name == "reason-patch" {
			operation.Spec.ConfigRollout = &v1alpha1.ConfigRollout{}
		} else {
			operation.Spec.Reboot = &v1alpha1.Reboot{}
		}
		if _, err := operations.Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"reason-anna", "reason-otto", "reason-patch"} {
		s.succeeds(t, name, 1)
	}
	var down []outage
	for i, reasons := range []int{2, 1} {
		own := outages(s.deeds(t, planes[i])[before[planes[i].Name]:])
		if len(own) != reasons {
			t.Errorf("control plane %s went down %d times, for %d reasons", planes[i].Name, len(own), reasons)
		}
		down = append(down, own...)
	}
	slices.SortFunc(down, func(a, b outage) int { return a.told.Compare(b.told) })
	for i := 1; i < len(down); i++ {
		if down[i].told.Before(down[i-1].back) {
			t.Errorf("two control planes were down at once: %+v", down)
		}
	}
	if err := patches.Delete(t.Context(), patch.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitPending(t, planes[:1])
	s.rollOut(t, "reason-gone", names(planes[:1]))
}

// outage is one reboot of a machine: when it was told, and when it booted.
type outage struct{ told, back time.Time }

func outages(deeds []node.Deed) []outage {
	var out []outage
	for _, deed := range deeds {
		switch {
		case deed.What == node.DeedToldReboot:
			out = append(out, outage{told: deed.Time})
		case deed.What == node.DeedBoot && len(out) > 0:
			out[len(out)-1].back = deed.Time
		}
	}
	return out
}
