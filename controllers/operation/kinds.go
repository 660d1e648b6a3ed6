// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// The steps, as they are called in plans and in status.
const (
	stepGates    = "Gates"
	stepOwnGates = "OperationGates"
	stepSnapshot = "Snapshot"
	stepCordon   = "Cordon"
	stepDrain    = "Drain"
	stepStage    = "Stage"
	stepHandOver = "HandOver"
	stepReboot   = "Reboot"
	stepVerify   = "Verify"
	stepUncordon = "Uncordon"
)

// kind is a type of operation.
type kind struct {
	// name of the member of the union.
	name string
	// needs tells whether a machine has need of it; nil: every machine has.
	needs func(*v1alpha1.TalosMachine) bool
	// before are the steps between draining a machine and rebooting it.
	before []string
}

// kindOf is the kind of an operation, and whether it can be carried out.
func kindOf(spec *v1alpha1.TalosOperationSpec) (kind, bool) {
	switch {
	case spec.Reboot != nil:
		return kind{name: "reboot"}, true
	case spec.ConfigRollout != nil:
		return kind{name: "configRollout", needs: waitsForReboot, before: []string{stepStage}}, true
	case spec.TalosUpgrade != nil:
		return kind{name: "talosUpgrade"}, false
	case spec.KubernetesUpgrade != nil:
		return kind{name: "kubernetesUpgrade"}, false
	case spec.CiliumUpgrade != nil:
		return kind{name: "ciliumUpgrade"}, false
	case spec.IchorUpgrade != nil:
		return kind{name: "ichorUpgrade"}, false
	case spec.Shutdown != nil:
		return kind{name: "shutdown"}, false
	case spec.EtcdRestore != nil:
		return kind{name: "etcdRestore"}, false
	case spec.RotateCA != nil:
		return kind{name: "rotateCA"}, false
	default:
		return kind{name: "rotateKey"}, false
	}
}

// waitsForReboot tells whether a machine has a configuration that takes effect at a reboot only.
func waitsForReboot(m *v1alpha1.TalosMachine) bool {
	return m.Status.Config != nil && m.Status.Config.PendingReboot
}

// steps are what is done on a machine, in order. gated says that the operation has gates of its own.
func (k kind) steps(m *v1alpha1.TalosMachine, gated bool) []string {
	steps := []string{stepGates}
	if gated {
		steps = append(steps, stepOwnGates)
	}
	if m.Spec.Role == v1alpha1.RoleControlPlane {
		steps = append(steps, stepSnapshot)
	}
	steps = slices.Concat(steps, []string{stepCordon, stepDrain}, k.before)
	if m.Spec.Role == v1alpha1.RoleControlPlane {
		steps = append(steps, stepHandOver)
	}
	return append(steps, stepReboot, stepVerify, stepUncordon)
}

// harmless are the steps before which, and in which, nothing is put aside.
func harmless(step string) bool {
	return slices.Contains([]string{"", stepGates, stepOwnGates, stepSnapshot}, step)
}
