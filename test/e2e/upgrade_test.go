// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
)

// upgradedTo is a version that none of the stack's machines has before.
const upgradedTo = "v1.14.1"

// upgradedTalos upgrades a control plane of Talos 1.12, which installs and reboots by itself, and a worker of 1.14, whose
// installer and reboot are two calls. The controller is killed while each of them installs. By the machines' own logs each was
// installed once and booted once; afterwards each is to have what it runs, and nothing drifts.
func upgradedTalos(t *testing.T, s *suite) {
	machines := []*v1alpha1.TalosMachine{s.newcomer(t, cpOlder), s.newcomer(t, workerLater)}
	before := map[string]int{}
	for _, m := range machines {
		before[m.Name] = len(s.deeds(t, m))
		if _, err := s.stack.Machines().Do(t.Context(), "slow-install", s.hardware(t, m).Name, "3s"); err != nil {
			t.Fatal(err)
		}
	}
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: "upgrade-two"}}
	operation.Spec.ClusterRef.Name, operation.Spec.TalosUpgrade = localstack.ClusterName, &v1alpha1.TalosUpgrade{Version: upgradedTo}
	operation.Spec.Machines = &v1alpha1.OperationMachines{Names: names(machines)}
	if _, err := s.operator.IchorV1alpha1().TalosOperations().Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		s.killWhileInstalling(t, operation.Name, m)
	}
	s.succeeds(t, operation.Name, len(machines))
	for _, m := range machines {
		if _, err := s.stack.Machines().Do(t.Context(), "slow-install", s.hardware(t, m).Name, "0s"); err != nil {
			t.Fatal(err)
		}
		s.expectUpgraded(t, m, s.deeds(t, m)[before[m.Name]:])
	}
}

// killWhileInstalling kills the controller while a machine installs, and waits until it runs again.
func (s *suite) killWhileInstalling(t *testing.T, operation string, m *v1alpha1.TalosMachine) {
	t.Helper()
	eventually(t, 4*time.Minute, func() error {
		now, err := s.operator.IchorV1alpha1().TalosOperations().Get(t.Context(), operation, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, record := range now.Status.Machines {
			if record.Name == m.Name && record.Step == "Install" && record.BootID != "" {
				return nil
			}
		}
		if now.Status.Phase == v1alpha1.OperationPaused || now.Status.Phase == v1alpha1.OperationFailed {
			t.Fatalf("operation %s is %s: %s", operation, now.Status.Phase, now.Status.Message)
		}
		return fmt.Errorf("machine %s doesn't install yet: %s", m.Name, now.Status.Message)
	})
	controller := s.stack.Controllers()[0]
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
}

// succeeds waits until an operation has ended well.
func (s *suite) succeeds(t *testing.T, name string, count int) {
	t.Helper()
	eventually(t, 6*time.Minute, func() error {
		now, err := s.operator.IchorV1alpha1().TalosOperations().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch status := now.Status; status.Phase {
		case v1alpha1.OperationSucceeded:
			if int(status.Done) != count {
				t.Errorf("operation %s was done on %d machines, want %d", name, status.Done, count)
			}
			return nil
		case v1alpha1.OperationPaused, v1alpha1.OperationFailed:
			t.Fatalf("operation %s is %s: %s", name, status.Phase, status.Message)
			return nil
		default:
			return fmt.Errorf("operation %s is %s: %s", name, status.Phase, status.Message)
		}
	})
}

// expectUpgraded holds a machine's own log, and its object, against one upgrade.
func (s *suite) expectUpgraded(t *testing.T, m *v1alpha1.TalosMachine, did []node.Deed) {
	t.Helper()
	count := map[string]int{}
	for _, deed := range did {
		count[deed.What]++
		if deed.Error != "" || deed.What == node.DeedBoot && deed.Version != upgradedTo {
			t.Errorf("machine %s: %+v", m.Name, deed)
		}
	}
	if told := count[node.DeedToldReboot] + count[node.DeedToldUpgrade]; count[node.DeedInstaller] != 1 || count[node.DeedBoot] != 1 || told != 1 {
		t.Errorf("machine %s was installed %d times, was told to reboot or upgrade itself %d times, and booted %d times; want each once", m.Name, count[node.DeedInstaller], told, count[node.DeedBoot])
	}
	eventually(t, 2*time.Minute, func() error {
		now := s.get(t, m.Name)
		settled, config := now.Status.SettledVersions, now.Status.Config
		drift := condition(now.Status.Conditions, v1alpha1.ConditionDriftDetected)
		if now.Status.TalosVersion != upgradedTo || settled == nil || settled.Talos != upgradedTo || settled.SchematicID != now.Status.SchematicID ||
			config.AppliedHash != config.RenderedHash || config.RunningHash != config.AppliedHash || drift.Status != metav1.ConditionFalse || drift.Reason != v1alpha1.ReasonInSync {
			return fmt.Errorf("machine %s runs %s and is to have %+v; drift: %s: %s", m.Name, now.Status.TalosVersion, settled, drift.Reason, drift.Message)
		}
		return nil
	})
	s.waitReady(t, time.Minute, m.Name)
	found, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), s.get(t, m.Name).Status.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if found.Spec.Unschedulable {
		t.Errorf("Node %s is still cordoned", found.Name)
	}
	if slices.ContainsFunc(did, func(deed node.Deed) bool { return deed.What == node.DeedToldUpgrade }) != (m.Spec.Role == v1alpha1.RoleControlPlane) {
		t.Errorf("machine %s was upgraded in the other way than its version asks for", m.Name)
	}
}

// deeds is what a machine did, by its own log.
func (s *suite) deeds(t *testing.T, m *v1alpha1.TalosMachine) []node.Deed {
	t.Helper()
	data, err := s.stack.Machines().Do(t.Context(), "deeds", s.hardware(t, m).Name)
	if err != nil {
		t.Fatal(err)
	}
	var list []node.Deed
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}
