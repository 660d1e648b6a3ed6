// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestWhatAClusterSaysOfItsMachinesConfigurations(t *testing.T) {
	t.Parallel()
	machine := func(name string, change func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Spec.ApprovalState, m.Spec.ClusterRef.Name = v1alpha1.ApprovalApproved, "prod"
		m.Status.Config = &v1alpha1.MachineConfigStatus{}
		if change != nil {
			change(m)
		}
		return m
	}
	condition := func(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
		}
	}
	drifted := condition(v1alpha1.ConditionDriftDetected, metav1.ConditionTrue, v1alpha1.ReasonDrifted)
	pending := func(m *v1alpha1.TalosMachine) { m.Status.Config.PendingReboot = true }
	refuses := func(m *v1alpha1.TalosMachine) {
		m.Status.Config.Refused = &v1alpha1.RefusedPatch{Name: "tuning", Path: "machine.x"}
	}
	var many []*v1alpha1.TalosMachine
	for i := range 8 {
		many = append(many, machine(fmt.Sprintf("m%d", i), drifted))
	}
	type says struct {
		status metav1.ConditionStatus
		reason string
		words  []string
	}
	quiet := says{metav1.ConditionFalse, v1alpha1.ReasonInSync, nil}
	for name, tc := range map[string]struct {
		policy         v1alpha1.DriftPolicy
		machines       []*v1alpha1.TalosMachine
		drift, pending says
	}{
		"no machines":        {drift: quiet, pending: quiet},
		"all as they should": {machines: []*v1alpha1.TalosMachine{machine("a", nil)}, drift: quiet, pending: quiet},
		"one that is pending approval and says that it drifted": {
			machines: []*v1alpha1.TalosMachine{machine("a", func(m *v1alpha1.TalosMachine) { drifted(m); m.Spec.ApprovalState = v1alpha1.ApprovalPending })},
			drift:    quiet, pending: quiet,
		},
		"one that was changed by hand": {
			machines: []*v1alpha1.TalosMachine{machine("a", drifted), machine("b", nil)},
			drift:    says{metav1.ConditionTrue, v1alpha1.ReasonDrifted, []string{"1 machine (a)", "spec.driftPolicy"}}, pending: quiet,
		},
		"one that is about to be mended": {
			policy: v1alpha1.DriftPolicyReapply, machines: []*v1alpha1.TalosMachine{machine("a", drifted)},
			drift: says{metav1.ConditionTrue, v1alpha1.ReasonDrifted, []string{"1 machine (a)", "mended when it is its turn"}}, pending: quiet,
		},
		"more than anybody reads": {
			machines: many, drift: says{metav1.ConditionTrue, v1alpha1.ReasonDrifted, []string{"8 machines (m0, m1, m2, m3, m4, and 3 more)"}}, pending: quiet,
		},
		"one that keeps a configuration of its own": {
			machines: []*v1alpha1.TalosMachine{machine("a", condition(v1alpha1.ConditionDriftDetected, metav1.ConditionUnknown, "OwnConfiguration"))},
			drift:    says{metav1.ConditionFalse, v1alpha1.ReasonInSync, []string{"isn't known of 1 machine (a)"}}, pending: quiet,
		},
		"one that waits for a reboot": {
			machines: []*v1alpha1.TalosMachine{machine("a", pending)}, drift: quiet,
			pending: says{metav1.ConditionTrue, v1alpha1.ReasonRebootRequired, []string{"1 machine (a): ", "configRollout"}},
		},
		"one that is held back": {
			machines: []*v1alpha1.TalosMachine{machine("a", condition(v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonHeld))}, drift: quiet,
			pending: says{metav1.ConditionTrue, v1alpha1.ReasonHeld, []string{"hold-apply"}},
		},
		"one that can't have a patch comes before one that waits for a reboot": {
			machines: []*v1alpha1.TalosMachine{machine("a", pending), machine("b", refuses)}, drift: quiet,
			pending: says{metav1.ConditionTrue, v1alpha1.ReasonPatchRefused, []string{"1 machine (b (patch tuning)): a patch can't be rendered", "1 machine (a): "}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &v1alpha1.TalosCluster{}
			cluster.Spec.DriftPolicy = tc.policy
			configuration(cluster, tc.machines)
			for kind, want := range map[string]says{v1alpha1.ConditionDriftDetected: tc.drift, v1alpha1.ConditionConfigurationPending: tc.pending} {
				got := meta.FindStatusCondition(cluster.Status.Conditions, kind)
				if got == nil || got.Status != want.status || got.Reason != want.reason {
					t.Errorf("%s is %+v, want %s %s", kind, got, want.status, want.reason)
					continue
				}
				for _, words := range want.words {
					if !strings.Contains(got.Message, words) {
						t.Errorf("%s says %q, want %q in it", kind, got.Message, words)
					}
				}
			}
		})
	}
}
