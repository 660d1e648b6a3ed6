// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

func TestNewMachine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*ichor.TalosMachine)
		want   []string
	}{
		"named by its UUID": {func(*ichor.TalosMachine) {}, nil},
		"named by something else": {
			func(m *ichor.TalosMachine) { m.Name = "web-1" },
			[]string{"metadata.name: 4c4c4544-0051-3610-8052-b4c04f4c3132"},
		},
		"a UUID of no worth": {
			func(m *ichor.TalosMachine) {
				m.Name = "03000200-0400-0500-0006-000700080009"
				m.Spec.Identity.UUID = m.Name
			},
			[]string{"metadata.name: weak-"},
		},
		"nothing known but its address": {
			func(m *ichor.TalosMachine) {
				m.Name = "weak-0123456789abcdef0123"
				m.Spec.Identity = ichor.MachineIdentity{}
			}, nil,
		},
		"adopted without an address": {
			func(m *ichor.TalosMachine) { m.Spec.Origin = ichor.MachineAdopted }, []string{"spec.address: Required"},
		},
		"adopted at no address": {
			func(m *ichor.TalosMachine) { m.Spec.Origin, m.Spec.Address = ichor.MachineAdopted, "cp-1" }, []string{"spec.address: \"cp-1\""},
		},
		"discovered with an address": {
			func(m *ichor.TalosMachine) { m.Spec.Address = "10.0.0.1" }, []string{"spec.address: adopted"},
		},
		"unknown words": {
			func(m *ichor.TalosMachine) { m.Spec.Origin, m.Spec.DeletionPolicy = "Stolen", "Burn" },
			[]string{"spec.origin: \"Stolen\"", "spec.deletionPolicy: \"Burn\""},
		},
		"more than a machine has": {
			func(m *ichor.TalosMachine) { m.Spec.Identity.SerialNumber = strings.Repeat("9", 300) },
			[]string{"spec.identity.serialNumber: 256"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := pending()
			tc.change(m)
			expect(t, validation.ValidateTalosMachine(m), tc.want...)
		})
	}
}

func TestChangedMachine(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	going := func(policy ichor.DeletionPolicy) *ichor.TalosMachine {
		m := approved()
		m.DeletionTimestamp, m.Spec.DeletionPolicy = &now, policy
		return m
	}
	for name, tc := range map[string]struct {
		was    *ichor.TalosMachine
		change func(*ichor.TalosMachine)
		want   []string
	}{
		"locked":                        {pending(), func(m *ichor.TalosMachine) { m.Spec.Locked = true }, nil},
		"another cluster while pending": {pending(), func(m *ichor.TalosMachine) { m.Spec.ClusterRef.Name = "dev" }, nil},
		"another cluster when approved": {approved(), func(m *ichor.TalosMachine) { m.Spec.ClusterRef.Name = "dev" }, []string{"spec.clusterRef.name: remove the machine"}},
		"another identity":              {pending(), func(m *ichor.TalosMachine) { m.Spec.Identity.SerialNumber = "X" }, []string{"spec.identity: can't be changed"}},
		"left as it is after all":       {going(ichor.DeletionReset), func(m *ichor.TalosMachine) { m.Spec.DeletionPolicy = ichor.DeletionOrphan }, nil},
		"wiped after all":               {going(ichor.DeletionOrphan), func(m *ichor.TalosMachine) { m.Spec.DeletionPolicy = ichor.DeletionReset }, []string{"spec.deletionPolicy: can't be changed"}},
		"another origin":                {pending(), func(m *ichor.TalosMachine) { m.Spec.Origin, m.Spec.Address = ichor.MachineAdopted, "10.0.0.1" }, []string{"spec.origin: can't be changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tc.was.DeepCopy()
			tc.change(m)
			expect(t, validation.ValidateTalosMachineUpdate(m, tc.was), tc.want...)
		})
	}
}

func TestIdentityWord(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		was  *ichor.TalosMachine
		word *ichor.IdentityResolution
		want []string
	}{
		"distinct":               {pending(), &ichor.IdentityResolution{Decision: ichor.IdentityDistinct}, nil},
		"the same as another":    {pending(), &ichor.IdentityResolution{Decision: ichor.IdentitySameAs, Machine: "other"}, nil},
		"taken back":             {pending(), nil, nil},
		"distinct from what":     {pending(), &ichor.IdentityResolution{Decision: ichor.IdentityDistinct, Machine: "other"}, []string{"spec.identityResolution.machine: SameAs"}},
		"the same as nobody":     {pending(), &ichor.IdentityResolution{Decision: ichor.IdentitySameAs}, []string{"spec.identityResolution.machine: Required"}},
		"the same as itself":     {pending(), &ichor.IdentityResolution{Decision: ichor.IdentitySameAs, Machine: pending().Name}, []string{"spec.identityResolution.machine: itself"}},
		"the same as a ghost":    {pending(), &ichor.IdentityResolution{Decision: ichor.IdentitySameAs, Machine: "ghost"}, []string{"spec.identityResolution.machine: Not found"}},
		"a word that is none":    {pending(), &ichor.IdentityResolution{Decision: "Maybe"}, []string{"spec.identityResolution.decision: \"Maybe\""}},
		"of an approved machine": {approved(), &ichor.IdentityResolution{Decision: ichor.IdentityDistinct}, []string{"spec.identityResolution: approved"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tc.was.DeepCopy()
			m.Spec.IdentityResolution = tc.word
			expect(t, validation.ValidateTalosMachineIdentityUpdate(m, tc.was, facts()), tc.want...)
		})
	}
}

func TestFinalizer(t *testing.T) {
	t.Parallel()
	was := pending()
	was.Finalizers = []string{v1alpha1.MachineFinalizer}
	expect(t, validation.ValidateTalosMachineFinalizeUpdate(pending(), was), "metadata.finalizers: until the object is deleted")
	now := metav1.Now()
	was.DeletionTimestamp = &now
	expect(t, validation.ValidateTalosMachineFinalizeUpdate(pending(), was))

	cluster, wasCluster := &ichor.TalosCluster{}, &ichor.TalosCluster{}
	wasCluster.Finalizers, wasCluster.DeletionTimestamp = []string{v1alpha1.ClusterFinalizer}, &now
	expect(t, validation.ValidateTalosClusterFinalizeUpdate(cluster, wasCluster))
	wasCluster.Status.ControlPlaneSlots = []ichor.ControlPlaneSlot{{Name: "a"}}
	expect(t, validation.ValidateTalosClusterFinalizeUpdate(cluster, wasCluster), "metadata.finalizers: hold slots")
}

func TestMachineStatus(t *testing.T) {
	t.Parallel()
	m := pending()
	m.Status.Stage, m.Status.Phase = ichor.StageMaintenance, ichor.PhasePending
	expect(t, validation.ValidateTalosMachineStatusUpdate(m, pending()))
	m.Status.Stage, m.Status.Phase = "sleeping", "Dreaming"
	m.Status.Addresses = []string{"10.0.0.1", "x"}
	m.Status.MaintenanceFingerprint = "x"
	m.Status.FingerprintHistory = make([]ichor.FingerprintRecord, 9)
	m.Status.Conditions = []metav1.Condition{{Type: "Ready"}}
	m.Status.Config = &ichor.MachineConfigStatus{Drift: []ichor.ConfigDrift{{Path: "x", Have: "-----BEGIN PRIVATE KEY-----"}}}
	expect(t, validation.ValidateTalosMachineStatusUpdate(m, pending()),
		"status.stage: \"sleeping\"", "status.phase: \"Dreaming\"", "status.addresses[1]: \"x\"", "status.maintenanceFingerprint: SHA-256",
		"status.fingerprintHistory: 8", "status.config.drift[0]: private key",
		"status.conditions[0].status: ", "status.conditions[0].lastTransitionTime: ", "status.conditions[0].reason: ")
}
