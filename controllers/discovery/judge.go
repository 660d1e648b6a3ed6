// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Reasons of IdentityResolved=False besides those of the API.
const (
	reasonNoPermanentMAC = "NoPermanentMAC"
	reasonMACHeldByOther = "MACHeldByOther"
	reasonTargetMissing  = "TargetMissing"
	reasonMerging        = "Merging"
)

// verdict is a condition IdentityResolved to be.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// judge says whether it is sure which machine m is, seen beside all others. A machine that was resolved stays so: it is
// the newcomer with the same traits that is in doubt.
func judge(m *v1alpha1.TalosMachine, others []*v1alpha1.TalosMachine) verdict {
	if word := m.Spec.IdentityResolution; word != nil {
		return judgeByWord(m, word, others)
	}
	if condition := resolution(m); condition != nil && condition.Status == metav1.ConditionTrue &&
		(condition.Reason == v1alpha1.ReasonStrongIdentity || isAliasRecord(condition)) {
		return verdict{condition.Status, condition.Reason, condition.Message}
	}
	id := identity.Identity(m.Spec.Identity)
	holder, shared := holderOf(m, others)
	switch {
	case strings.HasPrefix(m.Name, identity.WeakPrefix) && identity.IsStrong(id):
		return doubt(m, v1alpha1.ReasonUUIDHeldByOther, uuidHeld(id, holder, shared))
	case identity.IsJunkUUID(id.UUID):
		return doubt(m, v1alpha1.ReasonUnusableUUID, fmt.Sprintf("its UUID %q can't tell it from other machines", id.UUID))
	case !identity.IsStrong(id):
		return doubt(m, reasonNoPermanentMAC, "it has no physical link with a permanent MAC address, so nothing shows that it is the same machine next time")
	case shared.SerialNumber:
		return doubt(m, v1alpha1.ReasonSerialHeldByOther, fmt.Sprintf("machine %s has the same serial number; a board or a network card may have been exchanged", holder.Name))
	case len(shared.MACAddresses) > 0:
		return doubt(m, reasonMACHeldByOther, fmt.Sprintf("machine %s has the same permanent MAC address %s", holder.Name, strings.Join(shared.MACAddresses, ", ")))
	default:
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonStrongIdentity, "its UUID tells it from all other machines"}
	}
}

func judgeByWord(m *v1alpha1.TalosMachine, word *v1alpha1.IdentityResolution, others []*v1alpha1.TalosMachine) verdict {
	if word.Decision == v1alpha1.IdentityDistinct {
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonResolvedByPerson, fmt.Sprintf("%s said that it is a machine of its own", word.By)}
	}
	if target := named(others, word.Machine); target != nil && target.DeletionTimestamp == nil {
		return doubt(m, reasonMerging, fmt.Sprintf("%s said that it is the same as machine %s, which takes its address; this object goes", word.By, word.Machine))
	}
	return doubt(m, reasonTargetMissing, fmt.Sprintf("%s said that it is the same as machine %s, which is gone; resolve it anew", word.By, word.Machine))
}

// doubt is a verdict that shows a person what there is to tell machines apart.
func doubt(m *v1alpha1.TalosMachine, reason, why string) verdict {
	address := "none"
	if len(m.Status.Addresses) > 0 {
		address = m.Status.Addresses[0]
	}
	return verdict{metav1.ConditionFalse, reason, fmt.Sprintf("%s. This one: %s, address %s. Say which machine it is with: ichor machine resolve %s",
		why, describe(identity.Identity(m.Spec.Identity)), address, m.Name)}
}

func uuidHeld(id identity.Identity, holder *v1alpha1.TalosMachine, shared identity.Shared) string {
	if holder == nil || !shared.UUID {
		return fmt.Sprintf("another machine had the UUID %s when this one was found; delete this object to have it found again by its UUID", id.UUID)
	}
	return fmt.Sprintf("machine %s has the same UUID (%s)", holder.Name, describe(identity.Identity(holder.Spec.Identity)))
}

// holderOf finds the machine that m shares traits with and that stands before it; of several, the one that shares most.
func holderOf(m *v1alpha1.TalosMachine, others []*v1alpha1.TalosMachine) (holder *v1alpha1.TalosMachine, shared identity.Shared) {
	for _, other := range others {
		if other.Name == m.Name || !standsBefore(other, m) {
			continue
		}
		overlap := identity.Overlap(identity.Identity(m.Spec.Identity), identity.Identity(other.Spec.Identity))
		if !overlap.Any() {
			continue
		}
		if holder == nil || weight(overlap) > weight(shared) || weight(overlap) == weight(shared) && older(other, holder) {
			holder, shared = other, overlap
		}
	}
	return holder, shared
}

func weight(shared identity.Shared) int {
	switch {
	case shared.UUID:
		return 3
	case shared.SerialNumber:
		return 2
	default:
		return 1
	}
}

// standsBefore tells whether other's claim to its traits is older than m's: it was approved or resolved, or found first.
func standsBefore(other, m *v1alpha1.TalosMachine) bool {
	condition := resolution(other)
	return other.Spec.ApprovalState == v1alpha1.ApprovalApproved || condition != nil && condition.Status == metav1.ConditionTrue || older(other, m)
}

func older(a, b *v1alpha1.TalosMachine) bool {
	if !a.CreationTimestamp.Time.Equal(b.CreationTimestamp.Time) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

func resolution(m *v1alpha1.TalosMachine) *metav1.Condition {
	return meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionIdentityResolved)
}

// describe says an identity in words.
func describe(id identity.Identity) string {
	id = identity.Normalize(id)
	word := func(text string) string {
		if text == "" {
			return "none"
		}
		return text
	}
	return fmt.Sprintf("UUID %s, serial number %s, MAC addresses %s", word(id.UUID), word(id.SerialNumber), word(strings.Join(id.MACAddresses, " ")))
}

// aliasMark starts the record of a person's word that another identity is this machine. It is kept in the condition
// IdentityResolved, because spec.identity can't change, and the object that the word was given on is gone.
const aliasMark = "it is also the machine with "

// aliasRecord is the message that records that seen is the same machine.
func aliasRecord(by string, seen identity.Identity) string {
	return fmt.Sprintf("%s%s: %s said so", aliasMark, describe(seen), by)
}

func isAliasRecord(condition *metav1.Condition) bool {
	return condition.Reason == v1alpha1.ReasonResolvedByPerson && strings.HasPrefix(condition.Message, aliasMark)
}

// isAlias tells whether a person said that an identity is machine m.
func isAlias(m *v1alpha1.TalosMachine, seen identity.Identity) bool {
	condition := resolution(m)
	return condition != nil && isAliasRecord(condition) && strings.HasPrefix(condition.Message, aliasMark+describe(seen)+": ")
}

// match finds the object of the machine that was seen, by the one rule; else by a person's word; else, for a machine that
// reports too little for the rule, by being word for word what the object of its name says. Of several, the approved or
// oldest one.
func match(machines []*v1alpha1.TalosMachine, seen identity.Identity, address string) *v1alpha1.TalosMachine {
	weak, _ := identity.Name(seen, address)
	rules := []func(*v1alpha1.TalosMachine) bool{
		func(m *v1alpha1.TalosMachine) bool {
			return identity.SameMachine(identity.Identity(m.Spec.Identity), seen)
		},
		func(m *v1alpha1.TalosMachine) bool { return isAlias(m, seen) },
		func(m *v1alpha1.TalosMachine) bool {
			return m.Name == weak && identity.Equal(identity.Identity(m.Spec.Identity), seen)
		},
	}
	for _, rule := range rules {
		var found *v1alpha1.TalosMachine
		for _, m := range machines {
			if rule(m) && (found == nil || preferred(m, found)) {
				found = m
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

func preferred(a, b *v1alpha1.TalosMachine) bool {
	approved := func(m *v1alpha1.TalosMachine) bool { return m.Spec.ApprovalState == v1alpha1.ApprovalApproved }
	if approved(a) != approved(b) {
		return approved(a)
	}
	return older(a, b)
}
