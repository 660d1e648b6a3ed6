// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// stepWiped handles a machine that ran and now answers in maintenance mode only: its disk was wiped. It is provisioned
// again if everything that was approved is still the same and the machine is silent everywhere else, so that no other
// machine gets its secrets.
func (v *visit) stepWiped(ctx context.Context, found *sighting) error {
	vouched := namedByAnnotation(v.m, found.probe.Fingerprint)
	if !vouched {
		signs, err := v.signsOfLife(found)
		if err != nil {
			return err
		}
		if len(signs) > 0 {
			v.block(v1alpha1.ReasonWiped, fmt.Sprintf("a machine in maintenance mode answers at %s in this one's place, but this one may be alive: %s; nothing was sent; %s", found.address, strings.Join(signs, "; "), vouchFor(found)), pollWaiting)
			return nil
		}
	}
	v.m.Status.Stage = v1alpha1.StageMaintenance
	setFalse(v.m, v1alpha1.ConditionInstalled, v1alpha1.ReasonWiped, "the machine is in maintenance mode: its system disk holds no configuration")
	if _, held := v.m.Annotations[v1alpha1.HoldApplyAnnotation]; held {
		v.block(v1alpha1.ReasonHeld, fmt.Sprintf("the machine came back with an empty disk; the annotation %s keeps it from being provisioned again", v1alpha1.HoldApplyAnnotation), pollSlow)
		return nil
	}
	if v.m.Spec.Role == v1alpha1.RoleControlPlane && v.cluster.Spec.Reprovision.ControlPlanes == v1alpha1.ReprovisionConfirm && !vouched {
		v.block(v1alpha1.ReasonConfirmationRequired, fmt.Sprintf("the control plane came back with an empty disk and certificate %s; to provision it again, annotate it with %s=%s", found.probe.Fingerprint, v1alpha1.TrustMaintenanceFingerprintAnnotation, found.probe.Fingerprint), pollSlow)
		return nil
	}
	facts, err := v.readMaintenance(ctx, found)
	if err != nil {
		v.block(v1alpha1.ReasonUnreachable, err.Error(), pollWaiting)
		return nil
	}
	if differences := differs(v.m, facts, found.address, vouched); len(differences) > 0 {
		v.block(v1alpha1.ReasonWiped, fmt.Sprintf("a machine in maintenance mode answers in this one's place, but it isn't as approved: %s; nothing was sent. If it is the machine, annotate this one with %s=%s",
			strings.Join(differences, "; "), v1alpha1.TrustMaintenanceFingerprintAnnotation, found.probe.Fingerprint), pollSlow)
		return nil
	}
	if waits, err := v.leaveDead(ctx); err != nil || waits {
		return err
	}
	v.reprovision(found)
	return nil
}

// leaveDead takes the member of a wiped control plane out of etcd, whose data went with the disk: it would count as a voter
// that never answers, while the machine joins as another member. It may be repeated. waits says that it can't be done
// now, and that this is written in the conditions.
func (v *visit) leaveDead(ctx context.Context) (waits bool, err error) {
	release, reason, why, err := v.takeLeave(ctx)
	if err != nil {
		return false, err
	}
	if why != "" {
		v.block(reason, v.memberFirst(why), pollWaiting)
		return true, nil
	}
	defer release()
	d, why, err := v.planWithout(ctx, "")
	if err != nil {
		return false, err
	}
	defer d.close()
	if why == "" && d.member != nil {
		why = v.unsaved(ctx, d.peer)
	}
	if why == "" && d.member != nil {
		if err := d.peer.EtcdRemoveMember(context.WithoutCancel(ctx), d.member.ID); err != nil {
			why = fmt.Sprintf("etcd member %s can't be removed: %s", memberID(d.member), err)
		} else {
			v.tell(corev1.EventTypeNormal, v1alpha1.ReasonWiped, "etcd member %s of the machine was removed: its data went with the disk", memberID(d.member))
		}
	}
	if why != "" {
		v.block(reasonEtcdUnhealthy, v.memberFirst(why), pollWaiting)
		return true, nil
	}
	v.m.Status.EtcdMemberID = ""
	return false, nil
}

// memberFirst says what keeps a wiped control plane from going on.
func (v *visit) memberFirst(why string) string {
	why = "the control plane came back with an empty disk, and its etcd member is removed first: " + why
	if v.m.DeletionTimestamp != nil {
		why += "; to leave etcd as it is, set spec.deletionPolicy to Orphan"
	}
	return why
}

// readMaintenance reads the facts over a connection that is pinned to what answered; nothing is written over it.
func (v *visit) readMaintenance(ctx context.Context, found *sighting) (*talos.Facts, error) {
	node, err := v.Dialer.DialMaintenance(ctx, found.address, found.probe.Fingerprint)
	if err != nil {
		return nil, err
	}
	facts, err := node.Facts(ctx)
	return facts, errors.Join(err, node.Close())
}

// differs lists what is not as it was approved. A person who named the certificate vouches for what may be exchanged, but
// not for another machine.
func differs(m *v1alpha1.TalosMachine, facts *talos.Facts, address netip.Addr, vouched bool) []string {
	var differences []string
	want, have := m.Spec.Identity, facts.Identity
	if !same(want, have) {
		differences = append(differences, "it is another machine: "+describeIdentity(have))
	}
	if vouched {
		return differences
	}
	if want.UUID != have.UUID || want.SerialNumber != have.SerialNumber {
		differences = append(differences, fmt.Sprintf("UUID %s and serial number %q, approved were %s and %q", have.UUID, have.SerialNumber, want.UUID, want.SerialNumber))
	}
	for _, mac := range want.MACAddresses {
		if !slices.Contains(have.MACAddresses, mac) {
			differences = append(differences, fmt.Sprintf("network interface %s is missing", mac))
		}
	}
	for _, disk := range m.Spec.Disks {
		if disk.Role != v1alpha1.DiskUnused && len(machineconfig.MatchDisks(disk.Match, facts.Inventory)) != 1 {
			differences = append(differences, fmt.Sprintf("disk with %s is missing", machineconfig.DescribeMatch(disk.Match)))
		}
	}
	if !inOwnNetwork(m, address) {
		differences = append(differences, fmt.Sprintf("address %s is neither its own nor in its network", address))
	}
	return differences
}

// reprovision pins what answered and starts over. What the machine was installed with stays settled.
func (v *visit) reprovision(found *sighting) {
	attempts := v.m.Status.Provisioning.Attempts
	v.m.Status.Provisioning = &v1alpha1.ProvisioningStatus{Fingerprint: string(found.probe.Fingerprint), Attempts: attempts}
	v.m.Status.SystemDisk = nil
	v.m.Status.Phase = v1alpha1.PhaseApproved
	message := fmt.Sprintf("the machine came back at %s with an empty disk and everything else as approved; it is provisioned again, pinned to certificate %s", found.address, found.probe.Fingerprint)
	v.tell(corev1.EventTypeWarning, v1alpha1.ReasonWiped, "%s", message)
	setTrue(v.m, v1alpha1.ConditionFingerprintTrusted, v1alpha1.ReasonPinned, message)
	setFalse(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonWiped, message)
	setFalse(v.m, v1alpha1.ConditionJoined, v1alpha1.ReasonWiped, message)
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonWiped, message)
	v.after = pollFast
}
