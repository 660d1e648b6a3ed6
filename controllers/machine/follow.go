// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

// follow watches a configured machine until it is Ready, and from then on.
func (v *visit) follow(ctx context.Context, found *sighting) error {
	v.describe(found.facts)
	if !v.compare(ctx, found) {
		return nil
	}
	v.checkInstalled(found.facts)
	v.checkHardened(found.facts)
	if done, err := v.reconfigure(ctx, found); err != nil || !done {
		return err
	}
	if err := v.checkJoined(ctx, found); err != nil {
		return err
	}
	return v.checkReady(found.facts)
}

// describe writes what the machine says of itself into its status.
func (v *visit) describe(facts *talos.Facts) {
	status := &v.m.Status
	status.Stage = facts.Stage.Stage
	status.Hostname = facts.Hostname
	status.TalosVersion = facts.TalosVersion
	status.SystemDisk = facts.SystemDisk
	if facts.SchematicID != "" {
		status.SchematicID = facts.SchematicID
	}
	if facts.NodeName != "" {
		status.NodeName = facts.NodeName
	}
	if len(facts.Addresses) > 0 && !sameAddresses(status.Addresses, facts.Addresses) {
		status.Addresses = facts.Addresses
	}
	if facts.Inventory != nil {
		status.Inventory = facts.Inventory
	}
}

// sameAddresses tells whether a machine has the addresses that are known, in whatever order: the first is the one to dial,
// and it stays while the machine has it.
func sameAddresses(known, now []string) bool {
	a, b := slices.Clone(known), slices.Clone(now)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// compare reads the running configuration and holds it against the one that was sent; it says whether to go on.
func (v *visit) compare(ctx context.Context, found *sighting) bool {
	running, err := found.node.RunningConfiguration(ctx)
	if err != nil {
		v.unreadable(err)
		return false
	}
	hash := machineconfig.Hash(running)
	v.running = running
	v.config().RunningHash = hash
	record := v.m.Status.Provisioning
	if v.m.Spec.Origin == v1alpha1.MachineAdopted {
		if find(v.m, v1alpha1.ConditionConfigApplied) == nil {
			setTrue(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplied, "the machine was adopted with its configuration")
		}
		return true
	}
	if record.AppliedAt != nil {
		if condition := find(v.m, v1alpha1.ConditionConfigApplied); condition != nil && condition.Reason == v1alpha1.ReasonWiped {
			// Another machine answered in its place for a time.
			setTrue(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplied, fmt.Sprintf("the machine at %s took its configuration", record.Address))
		}
		return true
	}
	if record.ConfigHash == "" {
		record.ConfigHash = hash
	}
	if hash != record.ConfigHash {
		v.block(reasonOtherConfiguration, fmt.Sprintf("the machine at %s runs a configuration with hash %.12s, but Ichor was sending %.12s; somebody else configured it", found.address, hash, record.ConfigHash), pollSlow)
		return false
	}
	// The answer was lost, or nobody was left to hear it: the machine itself says that it arrived.
	v.applied(hash)
	return true
}

// unreadable keeps what is known; the machine may be on its way.
func (v *visit) unreadable(err error) {
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonTalosNotReady, err.Error())
	v.m.Status.Phase = phase(v.m, false)
	v.after = pollFast
}

// checkInstalled compares the disk that Talos runs from with the approved one.
func (v *visit) checkInstalled(facts *talos.Facts) {
	before := isTrue(v.m, v1alpha1.ConditionInstalled)
	if facts.SystemDisk == nil {
		setFalse(v.m, v1alpha1.ConditionInstalled, v1alpha1.ReasonInstalling, "Talos is not installed on a disk yet")
		return
	}
	if facts.Stage.Stage == v1alpha1.StageInstalling {
		setFalse(v.m, v1alpha1.ConditionInstalled, v1alpha1.ReasonInstalling, "Talos is being installed on "+facts.SystemDisk.Device)
		return
	}
	if want := approvedSystemDisk(v.m); want != nil && !isDisk(*want, facts.SystemDisk) {
		message := fmt.Sprintf("Talos runs from %s (serial %s, wwid %s), but the disk with %s was approved", facts.SystemDisk.Device, facts.SystemDisk.Serial, facts.SystemDisk.WWID, machineconfig.DescribeMatch(*want))
		if condition := find(v.m, v1alpha1.ConditionInstalled); condition == nil || condition.Reason != v1alpha1.ReasonWrongDisk {
			v.tell(corev1.EventTypeWarning, v1alpha1.ReasonWrongDisk, "%s", message)
		}
		setFalse(v.m, v1alpha1.ConditionInstalled, v1alpha1.ReasonWrongDisk, message)
		return
	}
	message := fmt.Sprintf("Talos is installed on %s (serial %s)", facts.SystemDisk.Device, facts.SystemDisk.Serial)
	if !before {
		v.tell(corev1.EventTypeNormal, v1alpha1.ReasonInstalled, "%s", message)
	}
	setTrue(v.m, v1alpha1.ConditionInstalled, v1alpha1.ReasonInstalled, message)
}

func approvedSystemDisk(m *v1alpha1.TalosMachine) *v1alpha1.DiskMatch {
	for _, disk := range m.Spec.Disks {
		if disk.Role == v1alpha1.DiskSystem {
			return &disk.Match
		}
	}
	return nil
}

func isDisk(want v1alpha1.DiskMatch, have *v1alpha1.SystemDisk) bool {
	return (want.Serial == "" || want.Serial == have.Serial) && (want.WWID == "" || want.WWID == have.WWID)
}

// checkJoined looks for the machine's Node, and for its vote in etcd.
func (v *visit) checkJoined(ctx context.Context, found *sighting) error {
	node, err := v.node(found.facts)
	if err != nil {
		return err
	}
	if node == nil {
		setFalse(v.m, v1alpha1.ConditionJoined, v1alpha1.ReasonWaitingForNode, "there is no Node of this machine yet")
		return nil
	}
	if !kube.HasAddress(node, v.m.Status.Addresses) {
		setFalse(v.m, v1alpha1.ConditionJoined, v1alpha1.ReasonConflict, fmt.Sprintf("Node %s has none of the machine's addresses (%s): it is another machine's, or has not been updated yet", node.Name, strings.Join(v.m.Status.Addresses, ", ")))
		return nil
	}
	v.m.Status.NodeName = node.Name
	message := fmt.Sprintf("Node %s is the machine's", node.Name)
	if v.m.Spec.Role == v1alpha1.RoleControlPlane {
		member, why, reason := v.etcdMember(ctx, found, node)
		if member == nil {
			setFalse(v.m, v1alpha1.ConditionJoined, reason, why)
			return nil
		}
		v.m.Status.EtcdMemberID = strconv.FormatUint(member.ID, 16)
		message += fmt.Sprintf(", and etcd member %s votes", v.m.Status.EtcdMemberID)
	}
	if !isTrue(v.m, v1alpha1.ConditionJoined) {
		v.tell(corev1.EventTypeNormal, v1alpha1.ReasonJoined, "%s", message)
	}
	setTrue(v.m, v1alpha1.ConditionJoined, v1alpha1.ReasonJoined, message)
	return nil
}

func (v *visit) node(facts *talos.Facts) (*corev1.Node, error) {
	name := facts.NodeName
	if name == "" {
		name = v.m.Spec.Hostname
	}
	return v.nodes.ForMachine(name, facts.Addresses)
}

// etcdMember finds the machine's member in the list that its own etcd gives; a learner doesn't count.
func (v *visit) etcdMember(ctx context.Context, found *sighting, node *corev1.Node) (member *talos.EtcdMember, why, reason string) {
	members, err := found.node.EtcdMembers(ctx)
	if err != nil {
		return nil, "etcd of the machine doesn't answer yet: " + err.Error(), v1alpha1.ReasonWaitingForEtcd
	}
	index := slices.IndexFunc(members, func(member talos.EtcdMember) bool {
		return member.Hostname != "" && (member.Hostname == node.Name || member.Hostname == found.facts.Hostname)
	})
	if index < 0 {
		return nil, fmt.Sprintf("etcd has no member %s yet", node.Name), v1alpha1.ReasonWaitingForEtcd
	}
	if members[index].Learner {
		return nil, fmt.Sprintf("etcd member %x is a learner and doesn't vote yet", members[index].ID), v1alpha1.ReasonEtcdLearner
	}
	return &members[index], "", ""
}

// checkReady sums up.
func (v *visit) checkReady(facts *talos.Facts) error {
	reason, why, err := v.unready(facts)
	if err != nil {
		return err
	}
	if reason != "" {
		setFalse(v.m, v1alpha1.ConditionReady, reason, why)
		v.m.Status.Phase = phase(v.m, true)
		v.after = pollFast
		if v.m.Status.Provisioning != nil && v.m.Status.Provisioning.ConvergedAt != nil {
			v.after = pollWaiting
		}
		return nil
	}
	if !isTrue(v.m, v1alpha1.ConditionReady) {
		v.tell(corev1.EventTypeNormal, v1alpha1.ReasonReady, "machine is ready as Node %s", v.m.Status.NodeName)
	}
	setTrue(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonReady, fmt.Sprintf("Talos runs and Node %s is ready", v.m.Status.NodeName))
	v.m.Status.Phase = v1alpha1.PhaseReady
	if record := v.m.Status.Provisioning; record != nil && record.ConvergedAt == nil {
		record.ConvergedAt = v.timestamp()
	}
	v.after = pollReady
	return nil
}

// unready is the first thing that keeps the machine from being Ready.
func (v *visit) unready(facts *talos.Facts) (reason, why string, err error) {
	if condition := find(v.m, v1alpha1.ConditionInstalled); condition != nil && !isTrue(v.m, v1alpha1.ConditionInstalled) {
		return condition.Reason, condition.Message, nil
	}
	if stage := facts.Stage; stage.Stage != v1alpha1.StageRunning || !stage.Ready {
		why := fmt.Sprintf("the machine is %s", stage.Stage)
		if len(stage.Unmet) > 0 {
			why += ": " + strings.Join(stage.Unmet, "; ")
		}
		return v1alpha1.ReasonTalosNotReady, why, nil
	}
	if condition := find(v.m, v1alpha1.ConditionJoined); condition != nil && !isTrue(v.m, v1alpha1.ConditionJoined) {
		return condition.Reason, condition.Message, nil
	}
	node, err := v.nodes.ForMachine(v.m.Status.NodeName, v.m.Status.Addresses)
	if err != nil {
		return "", "", err
	}
	if node == nil {
		return v1alpha1.ReasonWaitingForNode, "the machine's Node is gone", nil
	}
	if ready, why := kube.NodeReady(node); !ready {
		return v1alpha1.ReasonNodeNotReady, why, nil
	}
	return "", "", nil
}

// absent is a machine that doesn't answer, or doesn't let us in: rebooting, or gone.
func (v *visit) absent(found *sighting) {
	v.m.Status.Phase = phase(v.m, found.kind == sawLocked)
	v.after = pollFast
	if !sent(v.m) || isTrue(v.m, v1alpha1.ConditionInstalled) {
		v.after = pollWaiting
	}
	if !sent(v.m) && v.m.Spec.Origin != v1alpha1.MachineAdopted {
		v.block(v1alpha1.ReasonUnreachable, "the machine doesn't answer, so nothing can be sent to it: "+found.message, pollSlow)
		return
	}
	if off := offOnPurpose(v.m); off != nil {
		setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonPoweredOff, off.Message)
		return
	}
	setFalse(v.m, v1alpha1.ConditionReady, v1alpha1.ReasonUnreachable, "the machine doesn't answer: "+found.message)
}

// phase sums up, for people, where a machine is that is not Ready.
func phase(m *v1alpha1.TalosMachine, answers bool) v1alpha1.MachinePhase {
	record := m.Status.Provisioning
	installed := find(m, v1alpha1.ConditionInstalled)
	switch {
	case m.Spec.Origin != v1alpha1.MachineAdopted && !sent(m):
		return v1alpha1.PhaseApproved
	case m.Spec.Origin != v1alpha1.MachineAdopted && record.AppliedAt == nil:
		return v1alpha1.PhaseConfiguring
	case installed != nil && installed.Reason == v1alpha1.ReasonWrongDisk:
		return v1alpha1.PhaseFailed
	case m.Status.Stage == v1alpha1.StageRebooting:
		return v1alpha1.PhaseRebooting
	case !answers:
		// It was heard of last while it was being installed, or before: silence is the reboot after it.
		if m.Status.Phase == v1alpha1.PhaseConfiguring {
			return v1alpha1.PhaseInstalling
		}
		return v1alpha1.PhaseRebooting
	case !isTrue(m, v1alpha1.ConditionInstalled):
		return v1alpha1.PhaseInstalling
	default:
		return v1alpha1.PhaseJoining
	}
}
