// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// removedMachines removes a worker whose pod a PodDisruptionBudget holds, gives up one that has no power, which comes back
// quarantined, and replaces a control plane. Everything joins again as it was.
func removedMachines(t *testing.T, s *suite) {
	workers, planes := s.replaceable(t, v1alpha1.RoleWorker), s.replaceable(t, v1alpha1.RoleControlPlane)
	if len(workers) < 2 || len(planes) == 0 {
		t.Fatalf("%d workers and %d control planes are Ready, and this takes two and one", len(workers), len(planes))
	}
	s.removeHeldWorker(t, workers[0])
	s.giveUpWorker(t, workers[1])
	plane := planes[0]
	s.replaceControlPlane(t, plane)
	for _, m := range []*v1alpha1.TalosMachine{workers[0], workers[1], plane} {
		s.approve(t, s.operator, m.Name, m.Spec.Role, m.Spec.Hostname)
	}
	s.waitReady(t, 4*time.Minute, workers[0].Name, workers[1].Name, plane.Name)
	if held := s.cluster(t).Status.Quarantined; len(held) != 0 {
		t.Errorf("machines are quarantined that a person has approved again: %+v", held)
	}
}

// replaceable are machines that are Ready and can join again as they are: the medium of some has a Talos that takes no
// configuration with the cluster's Kubernetes.
func (s *suite) replaceable(t *testing.T, role v1alpha1.MachineRole) []*v1alpha1.TalosMachine {
	t.Helper()
	return slices.DeleteFunc(s.ready(t), func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.Role != role || m.Spec.Origin == v1alpha1.MachineAdopted || s.hardware(t, m).TalosVersion == olderTalos
	})
}

// removeHeldWorker removes a worker: nothing is done to it while its pod is held, which is named, and then it is wiped.
func (s *suite) removeHeldWorker(t *testing.T, worker *v1alpha1.TalosMachine) {
	t.Helper()
	const namespace = "held"
	s.holdPod(t, namespace, worker.Status.NodeName)
	plan := s.run(t, s.stack.Dir().Kubeconfig(), "ichor", "machine", "remove", worker.Name, "--plan")
	if plan.status != 0 || !strings.Contains(plan.err, "wiped: "+worker.Status.SystemDisk.Serial+" (system)") {
		t.Errorf("the plan: %+v", plan)
	}
	resets := s.resets(t, worker)
	s.must(t, s.stack.Dir().Kubeconfig(), "ichor", "machine", "remove", worker.Name, "--yes")
	eventually(t, time.Minute, func() error {
		now := s.get(t, worker.Name)
		drained := condition(now.Status.Conditions, v1alpha1.ConditionDrained)
		if drained.Status != metav1.ConditionFalse || !strings.Contains(drained.Message, "pod held/web") || !strings.Contains(drained.Message, "PodDisruptionBudget held/web") {
			return fmt.Errorf("what the drain waits for isn't named: %+v", now.Status.Conditions)
		}
		if now.Status.Removal == nil || len(now.Status.Removal.Disks) == 0 {
			return fmt.Errorf("what becomes of the disks isn't on record: %+v", now.Status.Removal)
		}
		return nil
	})
	if s.resets(t, worker) != resets {
		t.Fatal("the machine was wiped with its pod")
	}
	if err := s.kubernetes.PolicyV1().PodDisruptionBudgets(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitFoundAgain(t, worker)
	if told := s.resets(t, worker) - resets; told != 1 {
		t.Errorf("the machine was told to wipe itself %d times", told)
	}
	s.expectNoNode(t, worker)
}

// holdPod puts a pod onto a Node that may not be evicted.
func (s *suite) holdPod(t *testing.T, namespace, node string) {
	t.Helper()
	ctx, core, labels := t.Context(), s.kubernetes.CoreV1(), map[string]string{"app": "web"}
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := core.ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	_, err := s.kubernetes.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = core.Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](0), AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "c", Image: "web:1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// giveUpWorker removes a worker without power, by its name. With its power back it is quarantined, until its disk is wiped.
func (s *suite) giveUpWorker(t *testing.T, worker *v1alpha1.TalosMachine) {
	t.Helper()
	hardware := s.hardware(t, worker)
	applies, resets := s.console(t, worker).Applies, s.resets(t, worker)
	s.power(t, "off", hardware)
	t.Cleanup(func() { s.powerOn(t, hardware) })
	if r := s.run(t, s.stack.Dir().Kubeconfig(), "ichor", "machine", "remove", worker.Name, "--force", "--yes"); r.status != 2 || !strings.Contains(r.err, "--consent") {
		t.Errorf("without its name: %+v", r)
	}
	s.must(t, s.stack.Dir().Kubeconfig(), "ichor", "machine", "remove", worker.Name, "--force", "--consent", worker.Name)
	eventually(t, 2*time.Minute, func() error {
		now, err := s.admin.IchorV1alpha1().TalosMachines().Get(t.Context(), worker.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("the machine is not given up: %+v", now.Status.Conditions), err)
	})
	s.expectNoNode(t, worker)
	held := s.cluster(t).Status.Quarantined
	if len(held) != 1 || held[0].Name != worker.Name || held[0].MachineUID != worker.UID || held[0].By == "" {
		t.Fatalf("quarantined: %+v", held)
	}
	s.powerOn(t, hardware)
	eventually(t, 2*time.Minute, func() error {
		status := s.cluster(t).Status
		back := condition(status.Conditions, v1alpha1.ConditionMachinesQuarantined)
		if back.Status != metav1.ConditionTrue || !strings.Contains(back.Message, worker.Name) {
			return fmt.Errorf("nobody is told that the machine is back: %+v, %+v", back, status.Discovery.Hosts)
		}
		node, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), worker.Status.NodeName, metav1.GetOptions{})
		if err == nil && !node.Spec.Unschedulable {
			return fmt.Errorf("Node %s takes pods", node.Name)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if _, err := s.admin.IchorV1alpha1().TalosMachines().Get(t.Context(), worker.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the machine was entered again by itself: %v", err)
	}
	if s.console(t, worker).Applies != applies || s.resets(t, worker) != resets {
		t.Error("something was written to a machine in quarantine")
	}
	if _, err := s.stack.Machines().Do(t.Context(), "wipe", hardware.Name); err != nil {
		t.Fatal(err)
	}
	s.awaitFoundAgain(t, worker)
	if err := s.kubernetes.CoreV1().Nodes().Delete(t.Context(), worker.Status.NodeName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err) // a person's work: the Node that the quarantined machine made anew
	}
}

// replaceControlPlane removes a control plane, which leaves etcd by itself and keeps what is on its other disks.
func (s *suite) replaceControlPlane(t *testing.T, plane *v1alpha1.TalosMachine) {
	t.Helper()
	others := len(s.cluster(t).Status.EtcdMembers) - 1
	if err := s.operator.IchorV1alpha1().TalosMachines().Delete(t.Context(), plane.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitFoundAgain(t, plane)
	s.expectNoNode(t, plane)
	eventually(t, time.Minute, func() error {
		if members := s.cluster(t).Status.EtcdMembers; len(members) != others {
			return fmt.Errorf("etcd has the members %+v, want %d", members, others)
		}
		return nil
	})
	for _, slot := range s.cluster(t).Status.ControlPlaneSlots {
		if slot.MachineUID == plane.UID {
			t.Error("the slot is still held")
		}
	}
	signatures := func(m *v1alpha1.TalosMachine) map[string]string {
		out := map[string]string{}
		for _, disk := range m.Status.Inventory.Disks {
			if disk.Serial != plane.Status.SystemDisk.Serial {
				out[disk.Serial] = disk.Signature
			}
		}
		return out
	}
	before, now := signatures(plane), signatures(s.get(t, plane.Name))
	for serial, signature := range before {
		if now[serial] != signature {
			t.Errorf("disk %s had the signature %q, and has %q", serial, signature, now[serial])
		}
	}
}

// awaitFoundAgain waits until a machine that was removed is back as a new one that waits for a person.
func (s *suite) awaitFoundAgain(t *testing.T, was *v1alpha1.TalosMachine) {
	t.Helper()
	eventually(t, 3*time.Minute, func() error {
		now, err := s.admin.IchorV1alpha1().TalosMachines().Get(t.Context(), was.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return fmt.Errorf("the machine isn't found again: %w", err)
		case now.UID == was.UID:
			return fmt.Errorf("the machine isn't removed yet: %+v", now.Status.Conditions)
		case now.Spec.ApprovalState != v1alpha1.ApprovalPending || now.Status.Inventory == nil:
			return fmt.Errorf("the machine is %s, and was inspected: %v", now.Spec.ApprovalState, now.Status.Inventory != nil)
		}
		return nil
	})
}

func (s *suite) expectNoNode(t *testing.T, m *v1alpha1.TalosMachine) {
	t.Helper()
	if _, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), m.Status.NodeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Node %s of a machine that was removed: %v", m.Status.NodeName, err)
	}
}

// resets is how often a machine was told to wipe itself.
func (s *suite) resets(t *testing.T, m *v1alpha1.TalosMachine) uint64 {
	t.Helper()
	for method, calls := range s.console(t, m).Calls {
		if strings.HasSuffix(method, "MachineService/Reset") {
			return calls.Count
		}
	}
	return 0
}
