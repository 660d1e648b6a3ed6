// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// mostNames is how many machines a condition names; all are counted.
const mostNames = 5

// configuration sums up what its machines' conditions say of their configurations: whether somebody changed one of them, and
// which can't get theirs without a reboot or a person.
func configuration(cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) {
	var drifted, unread, rebooting, refusing, held []string
	for _, m := range machines {
		if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.DeletionTimestamp != nil {
			continue
		}
		drift := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionDriftDetected)
		switch {
		case drift == nil:
		case drift.Status == metav1.ConditionTrue:
			drifted = append(drifted, m.Name)
		case drift.Status == metav1.ConditionUnknown:
			unread = append(unread, m.Name)
		}
		applied := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionConfigApplied)
		config := m.Status.Config
		switch {
		case config != nil && config.Refused != nil:
			refusing = append(refusing, fmt.Sprintf("%s (patch %s)", m.Name, config.Refused.Name))
		case config != nil && config.PendingReboot:
			rebooting = append(rebooting, m.Name)
		case applied != nil && applied.Status == metav1.ConditionFalse && applied.Reason == v1alpha1.ReasonHeld:
			held = append(held, m.Name)
		}
	}
	drift(cluster, drifted, unread)
	pending(cluster, refusing, rebooting, held)
}

// drift says whether somebody changed machines behind Ichor's back.
func drift(cluster *v1alpha1.TalosCluster, drifted, unread []string) {
	apart := ""
	if len(unread) > 0 {
		apart = fmt.Sprintf("; it isn't known of %s", some(unread))
	}
	if len(drifted) == 0 {
		set(cluster, v1alpha1.ConditionDriftDetected, metav1.ConditionFalse, v1alpha1.ReasonInSync, "nobody changed the configuration of a machine"+apart)
		return
	}
	advice := "status.config.drift of each says where; undo it there, make it a TalosConfigPatch, or set spec.driftPolicy to Reapply"
	if cluster.Spec.DriftPolicy == v1alpha1.DriftPolicyReapply {
		advice = "each is mended when it is its turn, where that needs no reboot; its condition ConfigApplied says what keeps it from that"
	}
	set(cluster, v1alpha1.ConditionDriftDetected, metav1.ConditionTrue, v1alpha1.ReasonDrifted, fmt.Sprintf("the configuration of %s was changed by somebody; %s%s", some(drifted), advice, apart))
}

// pending says which machines wait for a person, or for a reboot, to get their configuration. What a person has to mend
// names the reason.
func pending(cluster *v1alpha1.TalosCluster, refusing, rebooting, held []string) {
	var parts []string
	reason := v1alpha1.ReasonInSync
	for _, each := range []struct {
		machines       []string
		reason, format string
	}{
		{held, v1alpha1.ReasonHeld, "%s: held back by the annotation " + v1alpha1.HoldApplyAnnotation},
		{rebooting, v1alpha1.ReasonRebootRequired, "%s: the configuration takes effect at a reboot, an operation of type configRollout brings it"},
		{refusing, v1alpha1.ReasonPatchRefused, "%s: a patch can't be rendered, status.config.refused of the machine says which field and why; correct the patch"},
	} {
		if len(each.machines) > 0 {
			reason = each.reason
			parts = append([]string{fmt.Sprintf(each.format, some(each.machines))}, parts...)
		}
	}
	if len(parts) == 0 {
		set(cluster, v1alpha1.ConditionConfigurationPending, metav1.ConditionFalse, reason, "no machine waits for a reboot or for somebody to get its configuration")
		return
	}
	set(cluster, v1alpha1.ConditionConfigurationPending, metav1.ConditionTrue, reason, strings.Join(parts, ". "))
}

// some counts machines and names the first of them.
func some(names []string) string {
	kind := "machines"
	if len(names) == 1 {
		kind = "machine"
	}
	text := fmt.Sprintf("%d %s (%s", len(names), kind, strings.Join(names[:min(len(names), mostNames)], ", "))
	if more := len(names) - mostNames; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text + ")"
}
