// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestAnApprovedMachineBecomesReady(t *testing.T) {
	t.Parallel()
	for name, role := range map[string]v1alpha1.MachineRole{"worker": v1alpha1.RoleWorker, "control plane": v1alpha1.RoleControlPlane} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11, func(m *v1alpha1.TalosMachine) { m.Spec.Role = role })
			phases := s.settle(machine)
			want := []v1alpha1.MachinePhase{v1alpha1.PhaseConfiguring, v1alpha1.PhaseInstalling, v1alpha1.PhaseRebooting, v1alpha1.PhaseJoining, v1alpha1.PhaseReady}
			if diff := cmp.Diff(want, phases[machine]); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
			m := s.get(machine)
			for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionFingerprintTrusted, v1alpha1.ConditionConfigApplied, v1alpha1.ConditionInstalled, v1alpha1.ConditionJoined, v1alpha1.ConditionReady} {
				if !isTrue(m, kind) {
					t.Errorf("condition %s is not True: %s", kind, describeConditions(m))
				}
			}
			if got := s.applies(machine); got != 1 {
				t.Errorf("the machine got %d configurations, want 1", got)
			}
			if m.Status.NodeName != "node-11" || m.Status.SettledVersions == nil || m.Status.Provisioning.ConvergedAt == nil || m.Status.Config.RunningHash != m.Status.Config.AppliedHash {
				t.Errorf("status is not complete: %+v", m.Status)
			}
			if role == v1alpha1.RoleControlPlane && m.Status.EtcdMemberID != "ab" {
				t.Errorf("etcd member is %q, want ab", m.Status.EtcdMemberID)
			}
			assertQuiet(t, s, machine)
		})
	}
}

// assertQuiet checks that looking again at a machine at rest changes nothing.
func assertQuiet(t *testing.T, s *stack, name string) {
	t.Helper()
	s.api.ClearActions()
	s.clock.Step(time.Minute)
	s.mustReconcile(name)
	for _, action := range s.api.Actions() {
		if action.GetVerb() == "update" {
			t.Errorf("looking at a machine at rest wrote %s/%s", action.GetResource().Resource, action.GetSubresource())
		}
	}
}

// The controller is killed at every moment at which it writes anything, before and after the write took effect, and when
// its configuration was lost on the way or its answer was. Whatever happens, the machine gets exactly one.
func TestKilledAnywhereAMachineIsConfiguredOnce(t *testing.T) {
	t.Parallel()
	for killAt := 1; killAt <= 12; killAt++ {
		for _, fault := range []talostest.Fault{talostest.NoFault, talostest.LoseAnswer} {
			t.Run(fmt.Sprintf("before write %d with fault %d", killAt, fault), func(t *testing.T) {
				t.Parallel()
				s := newStack(t)
				machine := s.add(11)
				s.machines[machine].Do(func(state *talostest.State) { state.Fault = fault })
				s.start(killAt)
				s.settle(machine)
				s.start(0)
				s.settle(machine)
				if got := s.applies(machine); got != 1 {
					t.Errorf("the machine got %d configurations, want 1", got)
				}
			})
		}
	}
}

func TestKilledWhileTheConfigurationIsSent(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.machines[machine].Do(func(state *talostest.State) { state.OnApply = s.process.kill })
	s.settle(machine)
	if got := s.get(machine).Status.Provisioning; got == nil || got.IntendedAt == nil || got.AppliedAt != nil {
		t.Fatalf("the intent isn't written down: %+v", got)
	}
	s.start(0)
	s.settle(machine)
	if got := s.applies(machine); got != 1 {
		t.Errorf("the machine got %d configurations, want 1", got)
	}
}

func TestKilledAfterTheIntentBeforeSending(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	// The first write is the history, the third is the outcome; here nothing was sent.
	s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.LoseRequest })
	s.start(3)
	s.settle(machine)
	s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.NoFault })
	s.start(0)
	m := s.mustReconcile(machine)
	wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonApplying, "finding out")
	if got := s.applies(machine); got != 0 {
		t.Fatalf("a configuration was sent while the first could still arrive")
	}
	s.settle(machine)
	if got := s.applies(machine); got != 1 {
		t.Errorf("the machine got %d configurations, want 1", got)
	}
	if got := s.get(machine).Status.Provisioning.Attempts; got != 2 {
		t.Errorf("attempts: want 2, got %d", got)
	}
}

func TestNothingIsSent(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		object  func(*v1alpha1.TalosMachine)
		machine func(*talostest.State)
		cluster func(*v1alpha1.TalosCluster)
		kind    string
		reason  string
		words   []string
	}{
		"to a machine with another certificate": {
			machine: func(s *talostest.State) { s.Fingerprint = "fp-new" },
			kind:    v1alpha1.ConditionFingerprintTrusted, reason: v1alpha1.ReasonFingerprintChanged,
			words: []string{"fp-new", "fp-11-1", v1alpha1.TrustMaintenanceFingerprintAnnotation},
		},
		"when the annotation names a third certificate": {
			object: func(m *v1alpha1.TalosMachine) {
				annotate(m, v1alpha1.TrustMaintenanceFingerprintAnnotation, "fp-third")
			},
			machine: func(s *talostest.State) { s.Fingerprint = "fp-new" },
			kind:    v1alpha1.ConditionFingerprintTrusted, reason: v1alpha1.ReasonFingerprintChanged,
		},
		"to another machine at its address": {
			machine: func(s *talostest.State) { s.Facts.Identity.UUID = "11111111-2222-3333-4444-555555555555" },
			kind:    v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonOtherMachine, words: []string{"11111111-2222", "nothing was sent"},
		},
		"while it is held": {
			object: func(m *v1alpha1.TalosMachine) { annotate(m, v1alpha1.HoldApplyAnnotation, "") },
			kind:   v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonHeld,
		},
		"when the approved disk is gone": {
			machine: func(s *talostest.State) { s.Facts.Inventory = &v1alpha1.MachineInventory{} },
			kind:    v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonDiskMissing, words: []string{"serial D11"},
		},
		"to a control plane without a slot": {
			object:  controlPlane,
			cluster: func(c *v1alpha1.TalosCluster) { c.Status.ControlPlaneSlots = nil },
			kind:    v1alpha1.ConditionConfigApplied, reason: reasonSlotMissing,
		},
		"into another cluster of the same name": {
			object: func(m *v1alpha1.TalosMachine) { m.Spec.Approval.ClusterUID = "old" },
			kind:   v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonClusterReplaced,
		},
		"into a cluster that isn't there": {
			object: func(m *v1alpha1.TalosMachine) { m.Spec.ClusterRef.Name = "gone" },
			kind:   v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonClusterMissing,
		},
		"before the cluster took note of its secrets": {
			cluster: func(c *v1alpha1.TalosCluster) { c.Status.SecretsBundleHash = "" },
			kind:    v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonSecretsMissing,
		},
		"to a control plane while a learner exists": {
			object: controlPlane,
			cluster: func(c *v1alpha1.TalosCluster) {
				c.Status.EtcdMembers = []v1alpha1.EtcdMember{{ID: "1", Hostname: "cp-9", Learner: true}}
			},
			kind: v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonEtcdLearner,
		},
		"to a control plane while etcd isn't healthy": {
			object:  controlPlane,
			cluster: func(c *v1alpha1.TalosCluster) { c.Status.Conditions[0].Status = metav1.ConditionFalse },
			kind:    v1alpha1.ConditionConfigApplied, reason: reasonEtcdUnhealthy,
		},
		"to a machine that doesn't answer": {
			machine: func(s *talostest.State) { s.Mode = talostest.Off },
			kind:    v1alpha1.ConditionConfigApplied, reason: v1alpha1.ReasonUnreachable,
		},
		"to a machine that somebody else configured": {
			machine: func(s *talostest.State) { s.Mode = talostest.Locked },
			kind:    v1alpha1.ConditionConfigApplied, reason: reasonOtherConfiguration,
		},
		"to a machine that was rejected": {
			object: func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalRejected },
			kind:   v1alpha1.ConditionReady, reason: v1alpha1.ReasonRejected,
		},
		"to a machine that nobody approved": {
			object: func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalPending },
			kind:   v1alpha1.ConditionReady, reason: v1alpha1.ReasonWaitingForApproval,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			if tc.object != nil {
				s.changeMachine(machine, tc.object)
			}
			if tc.object != nil && s.get(machine).Spec.Role == v1alpha1.RoleControlPlane {
				s.changeCluster(func(c *v1alpha1.TalosCluster) {
					c.Status.ControlPlaneSlots = []v1alpha1.ControlPlaneSlot{{MachineUID: s.get(machine).UID, Name: machine}}
				})
			}
			if tc.cluster != nil {
				s.changeCluster(tc.cluster)
			}
			if tc.machine != nil {
				s.machines[machine].Do(tc.machine)
			}
			for range 3 {
				wantCondition(t, s.mustReconcile(machine), tc.kind, metav1.ConditionFalse, tc.reason, tc.words...)
				s.clock.Step(time.Minute)
			}
			if got := s.applies(machine); got != 0 {
				t.Errorf("%d configurations were sent", got)
			}
			assertQuiet(t, s, machine)
		})
	}
}

func annotate(m *v1alpha1.TalosMachine, key, value string) {
	m.Annotations = map[string]string{key: value}
}

func TestTheAnnotationLetsAChangedCertificateIn(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.machines[machine].Do(func(state *talostest.State) { state.Fingerprint = "fp-new" })
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionFingerprintTrusted, metav1.ConditionFalse, v1alpha1.ReasonFingerprintChanged)
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
		annotate(m, v1alpha1.TrustMaintenanceFingerprintAnnotation, "fp-new")
	})
	s.settle(machine)
	wantCondition(t, s.get(machine), v1alpha1.ConditionFingerprintTrusted, metav1.ConditionTrue, v1alpha1.ReasonTrustedByAnnotation)
	if got := s.applies(machine); got != 1 {
		t.Errorf("the machine got %d configurations, want 1", got)
	}
}

func TestWhatTheMachineAnswers(t *testing.T) {
	t.Parallel()
	t.Run("it refuses: a condition with its words, and nothing is sent again at once", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		machine := s.add(11)
		s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.Refuse })
		s.sync()
		after, err := s.machine.Reconcile(context.Background(), machine)
		if err != nil || after < time.Minute {
			t.Errorf("looked at again after %s (%v)", after, err)
		}
		m := s.get(machine)
		wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonRefusedByMachine, "no such thing")
		if m.Status.Phase != v1alpha1.PhaseFailed || m.Status.Provisioning.IntendedAt != nil {
			t.Errorf("phase %s, record %+v", m.Status.Phase, m.Status.Provisioning)
		}
	})
	t.Run("the request was lost: it is sent again", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		machine := s.add(11)
		s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.LoseRequest })
		s.mustReconcile(machine)
		s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.NoFault })
		s.settle(machine)
		if got := s.applies(machine); got != 1 {
			t.Errorf("the machine got %d configurations, want 1", got)
		}
	})
	t.Run("it has one already: it is looked at, and nothing is sent", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		machine := s.add(11)
		s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.Busy })
		m := s.mustReconcile(machine)
		wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonApplying, "already applied")
		if m.Status.Provisioning.IntendedAt == nil {
			t.Error("the intent was taken back")
		}
	})
	t.Run("it runs what somebody else sent in between", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		machine := s.add(11)
		s.machines[machine].Do(func(state *talostest.State) {
			state.Fault = talostest.LoseAnswer
			state.OnApply = func() { s.machines[machine].Do(func(state *talostest.State) { state.Config = []byte("foreign") }) }
		})
		s.mustReconcile(machine)
		wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, reasonOtherConfiguration)
	})
}

func TestBackInMaintenanceBeforeItWasInstalled(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.mustReconcile(machine)
	// Power is cut before the configuration is on a disk; the next boot has another certificate, or an impostor has.
	s.machines[machine].Do(func(state *talostest.State) {
		state.Mode, state.Fingerprint, state.Config = talostest.Maintenance, "fp-second-boot", nil
		state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true}
	})
	s.clock.Step(time.Hour)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionFingerprintTrusted, metav1.ConditionFalse, v1alpha1.ReasonFingerprintChanged, "fp-second-boot")
	if got := s.applies(machine); got != 1 {
		t.Fatalf("the machine got %d configurations, want only the first", got)
	}
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
		annotate(m, v1alpha1.TrustMaintenanceFingerprintAnnotation, "fp-second-boot")
	})
	s.settle(machine)
	if got := s.get(machine).Status.Provisioning.Attempts; got != 2 {
		t.Errorf("attempts: want 2, got %d", got)
	}
}

func TestTheMachineRunsFromAnotherDisk(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	for range 3 {
		s.mustReconcile(machine)
		s.tick(machine)
	}
	s.machines[machine].Do(func(state *talostest.State) {
		state.Mode = talostest.Configured
		state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageRunning, Ready: true}
		state.Facts.SystemDisk = &v1alpha1.SystemDisk{Device: "/dev/sdb", Serial: "OTHER"}
	})
	m := s.mustReconcile(machine)
	wantCondition(t, m, v1alpha1.ConditionInstalled, metav1.ConditionFalse, v1alpha1.ReasonWrongDisk, "OTHER", "D11")
	wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWrongDisk)
	if m.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("phase is %s", m.Status.Phase)
	}
}

func TestEventsTellTheStoryOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	seen := map[string]int{}
	for _, event := range s.drained() {
		seen[strings.Fields(event)[1]]++
	}
	for _, reason := range []string{v1alpha1.ReasonApplied, v1alpha1.ReasonInstalled, v1alpha1.ReasonJoined, v1alpha1.ReasonReady} {
		if seen[reason] != 1 {
			t.Errorf("event %s came %d times", reason, seen[reason])
		}
	}
}
