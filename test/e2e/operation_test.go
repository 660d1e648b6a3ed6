// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/localstack"
)

// rolledOut brings what waits for a reboot: to a control plane, then to a worker, one after the other, each drained, rebooted
// once and uncordoned, with a snapshot of etcd taken before. Taking it back takes another roll-out.
func rolledOut(t *testing.T, s *suite) {
	controlPlane, worker := s.readyControlPlane(t), s.readyWorker(t)
	machines := []*v1alpha1.TalosMachine{controlPlane, worker}
	names := []string{controlPlane.Name, worker.Name}
	boots := map[string]uint64{}
	for _, m := range machines {
		boots[m.Name] = s.rebootCalls(t, m)
	}
	patches := s.admin.IchorV1alpha1().TalosConfigPatches()
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "udev-everywhere"}}
	patch.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, MachineNames: names}
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(`{"udev":{"rules":["SUBSYSTEM==\"tty\""]}}`)}
	if _, err := patches.Create(t.Context(), patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitPending(t, machines)
	cordoned := s.cordonByHand(t, worker.Status.NodeName)

	s.rollOut(t, "roll-out", names)
	for _, m := range machines {
		if got := s.running(t, m); !bytes.Contains(got, []byte(`SUBSYSTEM=="tty"`)) {
			t.Errorf("machine %s was rolled out to, and doesn't run with the rule", m.Name)
		}
	}
	if !cordoned() {
		t.Error("a Node that a person had cordoned was uncordoned")
	}
	if err := patches.Delete(t.Context(), patch.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitPending(t, machines)
	s.rollOut(t, "roll-back", names)
	for _, m := range machines {
		if got := s.running(t, m); bytes.Contains(got, []byte(`SUBSYSTEM=="tty"`)) {
			t.Errorf("machine %s still runs with a rule that is gone", m.Name)
		}
		if told := s.rebootCalls(t, m) - boots[m.Name]; told != 2 {
			t.Errorf("machine %s was told to reboot %d times in two roll-outs", m.Name, told)
		}
	}
	if snapshots := s.snapshots(t); len(snapshots) == 0 {
		t.Error("a control plane went down without a snapshot of etcd")
	}
	s.uncordonByHand(t, worker.Status.NodeName)
}

// rollOut waits until a configRollout of all machines has ended well, and was about these.
func (s *suite) rollOut(t *testing.T, name string, names []string) {
	t.Helper()
	operations := s.operator.IchorV1alpha1().TalosOperations()
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	operation.Spec.ClusterRef.Name, operation.Spec.ConfigRollout = localstack.ClusterName, &v1alpha1.ConfigRollout{}
	if _, err := operations.Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 6*time.Minute, func() error {
		now, err := operations.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch status := now.Status; status.Phase {
		case v1alpha1.OperationSucceeded:
			var planned []string
			for _, m := range status.Plan.Machines {
				planned = append(planned, m.Name)
			}
			if !slices.Equal(planned, names) || int(status.Done) != len(names) {
				t.Errorf("it was done on %v of %v, want %v", status.Done, planned, names)
			}
			return nil
		case v1alpha1.OperationPaused, v1alpha1.OperationFailed:
			t.Fatalf("operation %s is %s: %s", name, status.Phase, status.Message)
			return nil
		default:
			return fmt.Errorf("operation %s is %s: %s", name, status.Phase, status.Message)
		}
	})
	for _, m := range names {
		node, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), s.get(t, m).Status.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, ours := node.Annotations["ichor.maesh.dev/cordoned-by"]; ours {
			t.Errorf("Node %s is still cordoned by Ichor", node.Name)
		}
	}
}

// awaitPending waits until machines have something that waits for a reboot.
func (s *suite) awaitPending(t *testing.T, machines []*v1alpha1.TalosMachine) {
	t.Helper()
	eventually(t, 3*time.Minute, func() error {
		for _, m := range machines {
			if config := s.get(t, m.Name).Status.Config; config == nil || !config.PendingReboot {
				return fmt.Errorf("nothing waits for a reboot of machine %s", m.Name)
			}
		}
		return nil
	})
}

// rebootCalls is how often a machine was told to reboot.
func (s *suite) rebootCalls(t *testing.T, m *v1alpha1.TalosMachine) uint64 {
	t.Helper()
	for method, calls := range s.console(t, m).Calls {
		if strings.HasSuffix(method, "MachineService/Reboot") {
			return calls.Count
		}
	}
	return 0
}

// readyControlPlane is a control plane that is Ready, and not the first one.
func (s *suite) readyControlPlane(t *testing.T) *v1alpha1.TalosMachine {
	t.Helper()
	for _, m := range s.ready(t) {
		if m.Spec.Role == v1alpha1.RoleControlPlane && m.Spec.Origin != v1alpha1.MachineAdopted {
			return m
		}
	}
	t.Fatal("no control plane is Ready")
	return nil
}

// cordonByHand cordons a Node as a person does, and tells whether it still is.
func (s *suite) cordonByHand(t *testing.T, node string) (still func() bool) {
	t.Helper()
	s.setUnschedulable(t, node, true)
	return func() bool {
		now, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return now.Spec.Unschedulable
	}
}

func (s *suite) uncordonByHand(t *testing.T, node string) { s.setUnschedulable(t, node, false) }

func (s *suite) setUnschedulable(t *testing.T, node string, is bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, is)
	if _, err := s.kubernetes.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// snapshots are the encrypted snapshots of etcd that the controller keeps.
func (s *suite) snapshots(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(s.stack.Dir().Snapshots())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
