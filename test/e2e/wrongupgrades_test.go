// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
)

// wrongUpgrades upgrades two workers, one after the other, and what can go wrong does: an image that the second one can't have,
// before anything is cordoned; a first one that goes back to its old version, or comes up without its extensions, and then
// the second isn't begun; and a reboot by hand after the installation, which is the one that was meant.
func wrongUpgrades(t *testing.T, s *suite) {
	machines := []*v1alpha1.TalosMachine{s.newcomer(t, workerFromOlder), s.newcomer(t, workerFromLater)}
	slices.SortFunc(machines, func(a, b *v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) }) // as they are planned
	first, second := machines[0], machines[1]
	from, untouched, began := first.Status.TalosVersion, len(s.deeds(t, second)), len(s.deeds(t, first))
	upgrade := func(name string) {
		t.Helper()
		operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: name}}
		operation.Spec.ClusterRef.Name, operation.Spec.TalosUpgrade = localstack.ClusterName, &v1alpha1.TalosUpgrade{Version: laterTalos}
		operation.Spec.Machines = &v1alpha1.OperationMachines{Names: names(machines)}
		if _, err := s.operator.IchorV1alpha1().TalosOperations().Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	s.hollow(t, "fail-pull", second, "missing")
	upgrade("missing-image")
	s.awaitPaused(t, "missing-image", "PullImage", "not found")
	s.expectDone(t, first, began, node.DeedPull)
	for _, m := range machines {
		s.expectSchedulable(t, m)
	}
	s.hollow(t, "fail-pull", second, "off")

	s.hollow(t, "fail-upgraded-boot", first, "on")
	s.ask(t, "resume", "missing-image")
	s.awaitPaused(t, "missing-image", "RolledBack", "came back with Talos "+from)
	s.expectDone(t, second, untouched, node.DeedPull)
	s.expectSchedulable(t, second)
	s.cancelled(t, "missing-image", first)
	if is := s.get(t, first.Name).Status.SettledVersions.Talos; is != from {
		t.Errorf("a machine that went back to Talos %s is to have %s", from, is)
	}
	s.hollow(t, "fail-upgraded-boot", first, "off")

	s.hollow(t, "other-schematic", first, strings.Repeat("ab", 32))
	upgrade("without-extensions")
	s.awaitPaused(t, "without-extensions", "extensions may be missing")
	s.expectDone(t, second, untouched, node.DeedPull)
	s.expectSchedulable(t, second)
	s.cancelled(t, "without-extensions", first)
	s.hollow(t, "other-schematic", first, "off")

	before := len(s.deeds(t, first))
	s.hollow(t, "slow-install", first, "5s")
	upgrade("rebooted-by-hand")
	s.awaitStep(t, "rebooted-by-hand", first, "Install", "")
	s.setLocked(t, first, true) // it is asked again before the machine is told to reboot
	s.awaitStep(t, "rebooted-by-hand", first, "Reboot", "spec.locked is true")
	s.power(t, "off", s.hardware(t, first))
	s.power(t, "on", s.hardware(t, first))
	s.succeeds(t, "rebooted-by-hand", len(machines))
	s.setLocked(t, first, false)
	s.hollow(t, "slow-install", first, "0s")
	count := map[string]int{}
	for _, deed := range s.deeds(t, first)[before:] {
		count[deed.What]++
	}
	if count[node.DeedInstaller] != 1 || count[node.DeedBoot] != 1 || count[node.DeedToldReboot] != 0 {
		t.Errorf("a machine that was rebooted by hand after the installation did %v", count)
	}
	for _, m := range machines {
		s.expectSchedulable(t, m)
		if is := s.get(t, m.Name).Status.SettledVersions.Talos; is != laterTalos {
			t.Errorf("machine %s is to have Talos %s", m.Name, is)
		}
	}
	s.waitReady(t, 2*time.Minute, names(machines)...)
}

// hollow has a machine misbehave, or ends that.
func (s *suite) hollow(t *testing.T, verb string, m *v1alpha1.TalosMachine, how string) {
	t.Helper()
	if _, err := s.stack.Machines().Do(t.Context(), verb, s.hardware(t, m).Name, how); err != nil {
		t.Fatal(err)
	}
}

// ask asks something of an operation from the command line.
func (s *suite) ask(t *testing.T, what, operation string, flags ...string) {
	t.Helper()
	s.must(t, s.stack.Dir().Kubeconfig(), "ichor", append([]string{"operation", what, operation, "--wait=false"}, flags...)...)
}

// awaitPaused waits until an operation is Paused and says all of this.
func (s *suite) awaitPaused(t *testing.T, name string, words ...string) {
	t.Helper()
	eventually(t, 4*time.Minute, func() error {
		now, err := s.operator.IchorV1alpha1().TalosOperations().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		says := now.Status.Phase == v1alpha1.OperationPaused
		for _, word := range words {
			says = says && strings.Contains(now.Status.Message, word)
		}
		if !says {
			return fmt.Errorf("operation %s is %s: %s; want it Paused with %q", name, now.Status.Phase, now.Status.Message, words)
		}
		return nil
	})
}

// awaitStep waits until a machine is at a step of an operation, and its record says something.
func (s *suite) awaitStep(t *testing.T, name string, m *v1alpha1.TalosMachine, step, says string) {
	t.Helper()
	eventually(t, 4*time.Minute, func() error {
		now, err := s.operator.IchorV1alpha1().TalosOperations().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, record := range now.Status.Machines {
			if record.Name == m.Name && record.Step == step && record.BootID != "" && strings.Contains(record.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("machine %s isn't at %s %q yet; operation %s is %s: %s", m.Name, step, says, name, now.Status.Phase, now.Status.Message)
	})
}

// cancelled cancels an operation, which puts back what it put aside on the machine that it was at.
func (s *suite) cancelled(t *testing.T, name string, at *v1alpha1.TalosMachine) {
	t.Helper()
	s.ask(t, "cancel", name, "--yes")
	eventually(t, 2*time.Minute, func() error {
		now, err := s.operator.IchorV1alpha1().TalosOperations().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.Status.Phase != v1alpha1.OperationCancelled {
			return fmt.Errorf("operation %s is %s: %s", name, now.Status.Phase, now.Status.Message)
		}
		return nil
	})
	s.expectSchedulable(t, at)
	s.waitReady(t, 2*time.Minute, at.Name)
}

func (s *suite) expectSchedulable(t *testing.T, m *v1alpha1.TalosMachine) {
	t.Helper()
	found, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), s.get(t, m.Name).Status.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if found.Spec.Unschedulable {
		t.Errorf("Node %s is cordoned", found.Name)
	}
}

// expectDone fails if a machine did anything but this since its log had so many lines.
func (s *suite) expectDone(t *testing.T, m *v1alpha1.TalosMachine, since int, only string) {
	t.Helper()
	for _, deed := range s.deeds(t, m)[since:] {
		if deed.What != only {
			t.Errorf("machine %s did %+v", m.Name, deed)
		}
	}
}

func (s *suite) setLocked(t *testing.T, m *v1alpha1.TalosMachine, is bool) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"locked": is}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.operator.IchorV1alpha1().TalosMachines().Patch(t.Context(), m.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
