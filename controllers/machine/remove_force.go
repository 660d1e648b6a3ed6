// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// forced tells whether a person consented to give the machine up if it can't be wiped.
func (v *visit) forced() bool {
	removal := v.m.Spec.Removal
	return removal != nil && removal.Force && removal.Consent == v.m.Name
}

// givenUp tells whether it was decided to give the machine up.
func givenUp(m *v1alpha1.TalosMachine) bool {
	return m.Status.Removal != nil && m.Status.Removal.GivenUpAt != nil
}

// giveUp lets a machine go that can't be wiped: its etcd member is removed by another control plane, it is quarantined,
// and its Node is deleted. Nothing is sent to the machine. Which member that is, and that it is about to be removed, is on
// record before it is; each step may be repeated.
func (v *visit) giveUp(ctx context.Context, why string) error {
	release, reason, turn, err := v.takeLeave(ctx)
	if err != nil {
		return err
	}
	if turn != "" {
		v.stays(reason, turn)
		return nil
	}
	defer release()
	record := v.removal()
	d, refusal, err := v.planWithout(ctx, record.EtcdMemberID)
	if err != nil {
		return err
	}
	defer d.close()
	if refusal != "" {
		v.removing(reasonEtcdUnhealthy, "it is not given up yet: "+refusal, pollWaiting)
		return nil
	}
	if d.member != nil {
		if why := v.unsaved(ctx, d.peer); why != "" {
			v.removing(reasonNoSnapshot, "it is not given up yet: "+why, pollSlow)
			return nil
		}
	}
	if record.GivenUpAt == nil {
		record.GivenUpAt = v.timestamp()
	}
	if d.member != nil {
		record.EtcdMemberID = memberID(d.member)
	}
	v.setReset(metav1.ConditionUnknown, reasonGivingUp, "the machine is given up without being wiped: "+why)
	v.removing(reasonGivingUp, "the machine is given up without being wiped: "+why, pollFast)
	if err := v.save(ctx); err != nil {
		return err
	}
	if waits, err := v.gaveWay(ctx); err != nil || waits {
		return err
	}
	switch full, err := v.quarantine(ctx, why); {
	case err != nil:
		return err
	case full:
		message := fmt.Sprintf("%d machines of the cluster are quarantined, which is as many as can be: wipe some of them by hand and approve them, or adopt them", maxQuarantined)
		v.setReset(metav1.ConditionFalse, reasonQuarantineFull, message)
		v.removing(reasonQuarantineFull, message, pollSlow)
		return nil
	}
	return v.carryOut(context.WithoutCancel(ctx), d, why)
}

// carryOut takes the member out of etcd and ends the object. Its calls have bounds of their own.
func (v *visit) carryOut(ctx context.Context, d *departure, why string) error {
	v.told = true
	if d.member != nil {
		if err := d.peer.EtcdRemoveMember(ctx, d.member.ID); err != nil {
			v.setReset(metav1.ConditionFalse, reasonEtcdUnhealthy, "its etcd member could not be removed")
			v.removing(reasonEtcdUnhealthy, fmt.Sprintf("etcd member %s of the machine could not be removed: %s", memberID(d.member), err), pollWaiting)
			return nil
		}
	}
	v.tell(corev1.EventTypeWarning, reasonGivenUp, "the machine was given up by %s without being wiped, and is quarantined: %s", v.m.Spec.Removal.By, why)
	v.removing(reasonGivenUp, "the machine was given up and is quarantined", pollFast)
	return v.forget(ctx)
}
