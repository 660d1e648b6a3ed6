// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// maxDrift is how many places in which a configuration differs are listed; all are counted.
const maxDrift = 64

// differences are between what the machine should have and what it runs. Equal bytes need no closer look.
func (v *visit) differences(wanted *rendering) ([]machineconfig.Difference, error) {
	if wanted.hash == v.config().RunningHash {
		return nil, nil
	}
	masks := machineconfig.MasksOf(wanted.patches).Join(machineconfig.ParseMasks(v.config().MaskedFields))
	return machineconfig.Compare(wanted.text, v.running, masks)
}

// noteDrift writes down in what the machine differs: because somebody changed it, or because what was decided anew isn't
// there yet.
func (v *visit) noteDrift(differences []machineconfig.Difference, anew, needsReboot bool) {
	config := v.config()
	config.PendingReboot = anew && needsReboot
	config.DriftCount = int32(len(differences)) //nolint:gosec // a configuration has fewer fields
	config.Drift = nil
	for _, difference := range differences[:min(len(differences), maxDrift)] {
		config.Drift = append(config.Drift, v1alpha1.ConfigDrift{
			Document: difference.Document, Path: difference.Path.String(), Want: difference.Want, Have: difference.Have,
		})
	}
	byHand := !anew || config.RunningHash != v.sentHash()
	switch {
	case byHand:
		message := fmt.Sprintf("%d places differ from what the machine should have, the first is %s", len(differences), place(differences[0].Document, differences[0].Path.String()))
		if !isTrue(v.m, v1alpha1.ConditionDriftDetected) {
			v.tell(corev1.EventTypeWarning, v1alpha1.ReasonDrifted, "%s", message)
		}
		setTrue(v.m, v1alpha1.ConditionDriftDetected, v1alpha1.ReasonDrifted, message)
	case config.PendingReboot:
		setFalse(v.m, v1alpha1.ConditionDriftDetected, v1alpha1.ReasonPendingReboot, "nobody changed the machine; what was decided anew waits for a reboot")
	default:
		setFalse(v.m, v1alpha1.ConditionDriftDetected, v1alpha1.ReasonApplying, "nobody changed the machine; what was decided anew is yet to be applied")
	}
}

// sentHash is of the configuration that the machine was last sent, or was seen to run when it had what it should.
func (v *visit) sentHash() string {
	if record := v.m.Status.Provisioning; record != nil && record.ConfigHash != "" {
		return record.ConfigHash
	}
	return v.config().AppliedHash
}

// unknownDrift is a running configuration that can't be compared.
func (v *visit) unknownDrift(err error) {
	v.config().Drift, v.config().DriftCount = nil, 0
	setUnknown(v.m, v1alpha1.ConditionDriftDetected, v1alpha1.ReasonUnreadable, err.Error())
}

// takeOver looks whether a machine that was entered with a configuration of its own runs exactly what it would be given
// without patches. Then, and only then, it is configured like all others from now on: nothing on it changes by that.
func (v *visit) takeOver(bundle *secrets.Bundle, found *sighting) bool {
	if v.m.Spec.Origin != v1alpha1.MachineAdopted {
		return false
	}
	versions := machineconfig.Settle(v.cluster, found.facts.SchematicID)
	text, err := machineconfig.Render(machineconfig.Inputs{Bundle: bundle, Cluster: v.cluster, Machine: v.m, Facts: v.facts(found, versions)})
	if err != nil {
		v.unknownDrift(errors.New("the machine was adopted and what it would be given can't be rendered: " + err.Error()))
		return false
	}
	differences, err := machineconfig.Compare(text, v.running, nil)
	if err != nil {
		v.unknownDrift(err)
		return false
	}
	if len(differences) > 0 {
		setUnknown(v.m, v1alpha1.ConditionDriftDetected, reasonOwnConfiguration, fmt.Sprintf(
			"the machine was adopted with a configuration of its own, which differs in %d places from what it would be given, the first is %s; it keeps it, and patches don't reach it",
			len(differences), place(differences[0].Document, differences[0].Path.String())))
		return false
	}
	versions.ConfigContract = machineconfig.ContractOf(v.facts(found, versions)) // its form stays when it gets another Talos
	v.m.Status.SettledVersions = &versions
	v.config().AppliedHash = machineconfig.Hash(text)
	return true
}
