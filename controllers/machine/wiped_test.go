// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// wipe empties a machine's disk: it boots into maintenance mode with a new certificate.
func (s *stack) wipe(name string) {
	s.machines[name].Do(func(state *talostest.State) {
		state.Mode, state.Config, state.Fingerprint = talostest.Maintenance, nil, "fp-after-wipe"
		state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true}
		state.Facts.SystemDisk, state.Facts.NodeName = nil, ""
	})
	node := s.get(name).Status.NodeName
	if err := s.kube.CoreV1().Nodes().Delete(s.t.Context(), node, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func TestAWipedMachineIsProvisionedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	settled := s.get(machine).Status.SettledVersions
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = "v1.99.0" })
	s.drained()
	s.wipe(machine)
	s.settle(machine)
	m := s.get(machine)
	if got := s.applies(machine); got != 2 {
		t.Errorf("the machine got %d configurations, want 2", got)
	}
	if m.Status.Provisioning.Fingerprint != "fp-after-wipe" || m.Status.Provisioning.ConvergedAt == nil || *m.Status.SettledVersions != *settled {
		t.Errorf("record %+v, versions %+v (were %+v)", m.Status.Provisioning, m.Status.SettledVersions, settled)
	}
	warned := false
	for _, event := range s.drained() {
		warned = warned || strings.HasPrefix(event, "Warning "+v1alpha1.ReasonWiped)
	}
	if !warned {
		t.Error("there was no Warning Event")
	}
}

func TestAnImpostorOfAWipedMachineGetsNothing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		machine func(*talostest.State)
		object  func(*v1alpha1.TalosMachine)
		cluster func(*v1alpha1.TalosCluster)
		reason  string
		word    string
	}{
		"another UUID":   {machine: func(s *talostest.State) { s.Facts.Identity.UUID = "11111111-2222-3333-4444-555555555555" }, reason: v1alpha1.ReasonWiped, word: "another machine"},
		"another serial": {machine: func(s *talostest.State) { s.Facts.Identity.SerialNumber = "X" }, reason: v1alpha1.ReasonWiped, word: "serial number"},
		"a card less": {
			object: func(m *v1alpha1.TalosMachine) {
				m.Spec.Identity.MACAddresses = append(m.Spec.Identity.MACAddresses, "02:00:5e:00:53:ff")
			},
			reason: v1alpha1.ReasonWiped, word: "02:00:5e:00:53:ff is missing",
		},
		"another disk":            {machine: func(s *talostest.State) { s.Facts.Inventory = &v1alpha1.MachineInventory{} }, reason: v1alpha1.ReasonWiped, word: "serial D11 is missing"},
		"held":                    {object: func(m *v1alpha1.TalosMachine) { annotate(m, v1alpha1.HoldApplyAnnotation, "x") }, reason: v1alpha1.ReasonHeld},
		"control planes: confirm": {object: controlPlane, cluster: func(c *v1alpha1.TalosCluster) { c.Spec.Reprovision.ControlPlanes = v1alpha1.ReprovisionConfirm }, reason: v1alpha1.ReasonConfirmationRequired, word: "fp-after-wipe"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.settle(machine)
			s.wipe(machine)
			if tc.machine != nil {
				s.machines[machine].Do(tc.machine)
			}
			if tc.object != nil {
				s.changeMachine(machine, tc.object)
			}
			if tc.cluster != nil {
				s.changeCluster(tc.cluster)
			}
			for range 3 {
				wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, tc.reason, tc.word)
			}
			if got := s.applies(machine); got != 1 {
				t.Errorf("a second configuration was sent")
			}
			assertQuiet(t, s, machine)
		})
	}
}

func TestAPersonVouchesForARepairedMachine(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11, func(m *v1alpha1.TalosMachine) {
		m.Spec.Identity.MACAddresses = append(m.Spec.Identity.MACAddresses, "02:00:5e:00:53:ff")
	})
	s.settle(machine)
	s.wipe(machine)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWiped)
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
		annotate(m, v1alpha1.TrustMaintenanceFingerprintAnnotation, "fp-after-wipe")
	})
	s.settle(machine)
	if got := s.applies(machine); got != 2 {
		t.Errorf("the machine got %d configurations, want 2", got)
	}
}

func TestAnImpostorAtAnAddressOfAMachineThatLives(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	impostor := talostest.NewMachine(talostest.State{Mode: talostest.Maintenance, Fingerprint: "impostor", Facts: s.machines[machine].Snapshot().Facts})
	s.world.Put("10.0.0.12", impostor)
	s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Status.Addresses = []string{"10.0.0.12", "10.0.0.11"} })
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if got := len(impostor.Snapshot().Applied); got != 0 {
		t.Error("the impostor got a configuration")
	}
}
