// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// moreNodes approves two control planes and two workers, of a later Talos and of an older one beside the first control
// plane's, and kills the controller once the first of them took its configuration. All get Ready, each with what the cluster
// wanted when it was its turn, and none is configured twice. One booted a version that can't take what the cluster wants.
func moreNodes(t *testing.T, s *suite) {
	s.expectRefused(t, workerRefused)
	later, older := []int{cpLater, workerLater}, []int{cpOlder, workerOlder}
	all := s.joinAll(t, later)

	controller := s.stack.Controllers()[0]
	eventually(t, time.Minute, func() error {
		for _, m := range all {
			if s.console(t, m).Applies > 0 {
				return nil
			}
		}
		return errors.New("no machine took a configuration")
	})
	starts := controller.Starts()
	if err := controller.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if controller.Starts() == starts {
			return errors.New("the controller was not started again")
		}
		return nil
	})

	// From here on the intent may move: what these two get is settled.
	eventually(t, 2*time.Minute, func() error {
		for _, m := range all {
			if s.get(t, m.Name).Status.SettledVersions == nil {
				return fmt.Errorf("the versions of machine %s are not settled", m.Name)
			}
		}
		return nil
	})
	all = append(all, s.joinAll(t, older)...)

	s.waitReady(t, 6*time.Minute, names(all)...)
	for _, n := range append(later, older...) {
		s.expectVersion(t, n)
	}
	eventually(t, time.Minute, func() error {
		status := s.cluster(t).Status
		voters := 0
		for _, member := range status.EtcdMembers {
			if !member.Learner {
				voters++
			}
		}
		if voters != 3 || status.ControlPlanes.Ready != 3 || status.ControlPlanes.Limit != 4 {
			return fmt.Errorf("etcd members %+v, control planes %+v; want three voters, three ready of at most four", status.EtcdMembers, status.ControlPlanes)
		}
		return nil
	})
}

// wipedWorker loses the disks of the newcomer's worker. It comes back in maintenance mode with a new key, and everything
// that was approved is still the same.
func wipedWorker(t *testing.T, s *suite) {
	m := s.at(t, s.stack.Fleet().Machines[1].Addr())
	if m.Spec.ApprovalState != v1alpha1.ApprovalApproved {
		s.approve(t, s.operator, m.Name, v1alpha1.RoleWorker, "worker-1")
		s.waitReady(t, 2*time.Minute, m.Name)
	}
	before := s.console(t, m).Applies
	if _, err := s.stack.Machines().Do(t.Context(), "wipe", s.hardware(t, m).Name); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Minute, func() error {
		if status := s.console(t, m); status.Applies == before {
			return fmt.Errorf("the machine is in stage %q and was not configured again; its object: %+v", status.Stage, s.get(t, m.Name).Status.Conditions)
		}
		return nil
	})
	s.waitReady(t, 3*time.Minute, m.Name)
	s.expectApprovedDisk(t, s.get(t, m.Name))
	events, err := s.kubernetes.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + m.Name})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.Type == corev1.EventTypeWarning && event.Reason == v1alpha1.ReasonWiped {
			return
		}
	}
	t.Errorf("no warning event with the reason %s: %+v", v1alpha1.ReasonWiped, events.Items)
}
