// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var start = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func condition(kind string, status metav1.ConditionStatus, reason, message string, minutes int) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute))}
}

func machine(name string, state v1alpha1.ApprovalState, conditions ...metav1.Condition) v1alpha1.TalosMachine {
	made := v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start)},
		Spec:       v1alpha1.TalosMachineSpec{ApprovalState: state, ClusterRef: v1alpha1.ClusterReference{Name: "prod"}},
		Status:     v1alpha1.TalosMachineStatus{Conditions: conditions, MaintenanceFingerprint: "new="},
	}
	if state == v1alpha1.ApprovalApproved {
		at := metav1.NewTime(start.Add(time.Minute))
		made.Spec.Approval = &v1alpha1.MachineApproval{At: &at, By: "alice"}
		made.Status.Phase = v1alpha1.PhaseInstalling
	}
	return made
}

// stands is a machine that isn't Ready for a reason.
func stands(machine v1alpha1.TalosMachine, reason, message string) v1alpha1.TalosMachine {
	machine.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message, 1)}
	return machine
}

func TestMachineIsListedWhereItsTurnIs(t *testing.T) {
	t.Parallel()
	installing := condition(v1alpha1.ConditionInstalled, metav1.ConditionFalse, v1alpha1.ReasonInstalling, "installs to disk S1", 2)
	ready := condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "", 5)
	fell := machine("fell", v1alpha1.ApprovalApproved, condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodeNotReady, "the Node is not ready", 9))
	at := metav1.NewTime(start)
	fell.Status.Provisioning = &v1alpha1.ProvisioningStatus{ConvergedAt: &at}
	dark := *fell.DeepCopy()
	dark.Status.Conditions = append(dark.Status.Conditions, condition(v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no answer at 10.0.0.1", 8))
	leaving := machine("leaving", v1alpha1.ApprovalApproved)
	leaving.DeletionTimestamp = &at
	for _, test := range []struct {
		name    string
		machine v1alpha1.TalosMachine
		list    string
		what    string
		command string
	}{
		{"a new machine needs a person", machine("new", v1alpha1.ApprovalPending), "needs you", "waits for approval", "ichor machine approve new"},
		{"a doubtful identity needs a person", machine("weak-1", v1alpha1.ApprovalPending, condition(v1alpha1.ConditionIdentityResolved, metav1.ConditionFalse, v1alpha1.ReasonUnusableUUID, "its UUID is all zeros", 0)), "needs you", "its UUID is all zeros", "ichor machine resolve weak-1"},
		{"a rejected machine is in no list", machine("no", v1alpha1.ApprovalRejected), "", "", ""},
		{"an approved machine goes on by itself", machine("cp-2", v1alpha1.ApprovalApproved, installing), "in progress", "Installing: installs to disk S1", "ichor machine show cp-2 --wait"},
		{"an approved machine that the controller hasn't looked at goes on by itself", machine("cp-2", v1alpha1.ApprovalApproved, condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWaitingForApproval, "a person has to approve it", 0)), "in progress", "Installing: approved, not taken up yet", "ichor machine show cp-2 --wait"},
		{"another certificate needs a person", machine("cp-2", v1alpha1.ApprovalApproved, condition(v1alpha1.ConditionFingerprintTrusted, metav1.ConditionFalse, v1alpha1.ReasonFingerprintChanged, "approved old=, now new=", 3)), "needs you", "approved old=, now new=", "kubectl annotate --overwrite talosmachine cp-2 ichor.maesh.dev/trust-maintenance-fingerprint=new="},
		{"a hold needs a person", machine("cp-2", v1alpha1.ApprovalApproved, condition(v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonHeld, "held", 3)), "needs you", "held", "kubectl annotate talosmachine cp-2 ichor.maesh.dev/hold-apply-"},
		{"a Ready machine is in no list", machine("cp-1", v1alpha1.ApprovalApproved, ready), "", "", ""},
		{"a machine that was Ready and isn't is wrong", fell, "wrong", "the Node is not ready", "ichor machine show fell --wait"},
		{"unreachability comes before what follows from it", dark, "wrong", "no answer at 10.0.0.1", "ichor machine show fell --wait"},
		{"a removal whose drain doesn't end needs a person", stands(leaving, v1alpha1.ReasonDrainBlocked, "waits for pod a/b"), "needs you", "waits for pod a/b", "ichor machine remove leaving --skip-drain"},
		{"a removal of what doesn't answer needs a person", stands(leaving, v1alpha1.ReasonUnreachable, "no answer"), "needs you", "no answer", "ichor machine remove leaving --force"},
		{"a removal that waits for its turn goes on by itself", stands(leaving, v1alpha1.ReasonWaitingForTurn, "waits"), "in progress", "being removed", ""},
		{"a removal goes on by itself", leaving, "in progress", "being removed", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := Look(nil, nil, []v1alpha1.TalosMachine{test.machine}, "ichor")
			lists := map[string][]Item{"needs you": got.NeedsYou, "in progress": got.InProgress, "wrong": got.Wrong}
			for name, items := range lists {
				if want := map[bool]int{true: 1}[name == test.list]; len(items) != want {
					t.Errorf("%q has %d items, want %d: %+v", name, len(items), want, items)
				}
			}
			if test.list == "" || len(lists[test.list]) != 1 {
				return
			}
			item := lists[test.list][0]
			if !strings.Contains(item.What, test.what) {
				t.Errorf("says %q, want %q", item.What, test.what)
			}
			if diff := cmp.Diff(test.command, item.Command); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongestComesFirst(t *testing.T) {
	t.Parallel()
	late, early := machine("late", v1alpha1.ApprovalApproved), machine("early", v1alpha1.ApprovalApproved)
	early.Spec.Approval.At = &metav1.Time{Time: start.Add(-time.Hour)}
	got := Look(nil, nil, []v1alpha1.TalosMachine{late, early}, "ichor")
	if got.InProgress[0].Subject != "early" || got.InProgress[1].Subject != "late" {
		t.Errorf("order %s, %s; want early, late", got.InProgress[0].Subject, got.InProgress[1].Subject)
	}
}

func TestClusterIsListed(t *testing.T) {
	t.Parallel()
	cluster := v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	cluster.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, "x", "the API doesn't answer", 0),
		condition(v1alpha1.ConditionSecretsReady, metav1.ConditionFalse, v1alpha1.ReasonSecretsMissing, "there is no Secret", 0),
		condition(v1alpha1.ConditionSurplusControlPlane, metav1.ConditionTrue, "x", "remove cp-1", 1),
		condition(v1alpha1.ConditionDiscovered, metav1.ConditionTrue, "x", "fine", 1),
	}
	got := Look([]v1alpha1.TalosCluster{cluster}, nil, nil, "kubectl ichor")
	if len(got.Wrong) != 1 || len(got.NeedsYou) != 2 {
		t.Fatalf("got %+v", got)
	}
	if want := "kubectl ichor cluster show prod"; got.Wrong[0].Command != want {
		t.Errorf("command %q, want %q", got.Wrong[0].Command, want)
	}
}

func TestOperationIsListedWhereItsTurnIs(t *testing.T) {
	t.Parallel()
	worker := machine("uid-1", v1alpha1.ApprovalApproved, condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "", 5))
	worker.Spec.Hostname = "worker-1"
	for _, test := range []struct {
		name    string
		phase   v1alpha1.OperationPhase
		mode    v1alpha1.OperationMode
		list    string
		command string
	}{
		{"one that works goes on by itself", v1alpha1.OperationRunning, v1alpha1.OperationModeRun, "in progress", "ichor operation watch roll"},
		{"one that waits for its turn, too", v1alpha1.OperationQueued, v1alpha1.OperationModeRun, "in progress", "ichor operation watch roll"},
		{"one that nobody looked at, too", "", v1alpha1.OperationModeRun, "in progress", "ichor operation watch roll"},
		{"one that stopped needs a person", v1alpha1.OperationPaused, v1alpha1.OperationModeRun, "needs you", "ichor operation show roll"},
		{"one that is over is in no list", v1alpha1.OperationFailed, v1alpha1.OperationModeRun, "", ""},
		{"a plan is in no list", v1alpha1.OperationPending, v1alpha1.OperationModePlan, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cluster := v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
			cluster.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionConfigurationPending, metav1.ConditionTrue, v1alpha1.ReasonRebootRequired, "1 machine (worker-1)", 0)}
			operation := v1alpha1.TalosOperation{
				ObjectMeta: metav1.ObjectMeta{Name: "roll", CreationTimestamp: metav1.NewTime(start)},
				Spec:       v1alpha1.TalosOperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, ConfigRollout: &v1alpha1.ConfigRollout{}, Mode: test.mode},
				Status:     v1alpha1.TalosOperationStatus{Phase: test.phase, Current: "uid-1", Total: 2, Message: "uid-1: Drain"},
			}
			got := Look([]v1alpha1.TalosCluster{cluster}, []v1alpha1.TalosOperation{operation}, []v1alpha1.TalosMachine{worker}, "ichor")
			lists := map[string][]Item{"needs you": got.NeedsYou, "in progress": got.InProgress}
			if test.list == "" {
				// Nothing is under way, so the reboots are still a person's.
				if want := "ichor machine config rollout --all --cluster prod"; len(got.NeedsYou) != 1 || got.NeedsYou[0].Command != want {
					t.Errorf("needs you: %+v, want %q", got.NeedsYou, want)
				}
				return
			}
			if len(got.NeedsYou)+len(got.InProgress) != 1 || len(lists[test.list]) != 1 {
				t.Fatalf("got %+v", got)
			}
			item := lists[test.list][0]
			if want := "(0 of 2 machines done): worker-1: Drain"; item.Command != test.command || !strings.Contains(item.What, want) {
				t.Errorf("got %+v, want command %q and %q", item, test.command, want)
			}
		})
	}
}

func TestMachineWhoseConfigurationWaitsForARebootIsToldWhatBringsIt(t *testing.T) {
	t.Parallel()
	waiting := machine("cp-1", v1alpha1.ApprovalApproved,
		condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "", 5),
		condition(v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonRebootRequired, "machine.sysctls takes effect at a reboot only", 6))
	if got, want := Next(&waiting, "ichor").Command, "ichor machine config rollout cp-1"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
}
