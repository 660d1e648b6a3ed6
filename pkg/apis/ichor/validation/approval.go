// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/identity"
)

// Bounds of a decision: etcd takes requests of 1.5 MiB.
const (
	maxReason     = 1024
	maxDisks      = 256
	maxNodeLabels = 128
)

// ApprovalFacts are what a decision about a machine is judged by, besides the machine itself.
type ApprovalFacts struct {
	// Cluster that the machine would belong to; nil if there is none of that name.
	Cluster *ichor.TalosCluster
	// Others are the other machines, all of them or those that have one of the ApprovalMarks.
	Others []ichor.TalosMachine
}

// ValidateTalosMachineApprovalUpdate judges a decision about a machine, and what was decided, against the hardware that
// was seen on it.
func ValidateTalosMachineApprovalUpdate(machine, was *ichor.TalosMachine, facts ApprovalFacts) field.ErrorList {
	path, spec := field.NewPath("spec"), &machine.Spec
	errs := validateState(spec.ApprovalState, was.Spec.ApprovalState, path.Child("approvalState"))
	if spec.Approval != nil {
		errs = append(errs, tooLong(spec.Approval.Reason, maxReason, path.Child("approval", "reason"))...)
		errs = append(errs, NoPrivateKey([]byte(spec.Approval.Reason), path.Child("approval", "reason"))...)
	}
	if spec.ApprovalState != ichor.ApprovalApproved {
		return errs
	}
	if was.Spec.ApprovalState == ichor.ApprovalApproved {
		errs = append(errs, validateFrozen(spec, &was.Spec, path)...)
	} else if spec.Origin != ichor.MachineAdopted {
		errs = append(errs, validateShown(spec.Approval, path.Child("approval", "maintenanceFingerprint"))...)
	}
	errs = append(errs, validateCluster(spec.ClusterRef.Name, facts.Cluster, path.Child("clusterRef", "name"))...)
	if spec.Role == "" {
		errs = append(errs, field.Required(path.Child("role"), "controlplane or worker"))
	} else {
		errs = append(errs, oneOf(spec.Role, path.Child("role"), ichor.RoleControlPlane, ichor.RoleWorker)...)
	}
	errs = append(errs, validateHostname(machine, facts, path.Child("hostname"))...)
	if len(spec.NodeLabels) > maxNodeLabels {
		errs = append(errs, field.TooMany(path.Child("nodeLabels"), len(spec.NodeLabels), maxNodeLabels))
	}
	errs = append(errs, metav1validation.ValidateLabels(spec.NodeLabels, path.Child("nodeLabels"))...)
	// What was decided before is judged again only where it changes: a disk that died since doesn't forbid a new label.
	fresh := was.Spec.ApprovalState != ichor.ApprovalApproved
	if fresh {
		errs = append(errs, validateNoTwin(machine, facts, path.Child("identity"))...)
	}
	if fresh || !apiequality.Semantic.DeepEqual(spec.Disks, was.Spec.Disks) {
		errs = append(errs, validateDisks(machine, path.Child("disks"))...)
	}
	if fresh || !apiequality.Semantic.DeepEqual(spec.Network, was.Spec.Network) {
		errs = append(errs, validateMachineNetwork(machine, facts, path.Child("network"))...)
	}
	return errs
}

func validateState(state, was ichor.ApprovalState, path *field.Path) field.ErrorList {
	switch {
	case state != ichor.ApprovalApproved && state != ichor.ApprovalRejected:
		return field.ErrorList{field.NotSupported(path, state, []ichor.ApprovalState{ichor.ApprovalApproved, ichor.ApprovalRejected})}
	case was == ichor.ApprovalApproved && state != was:
		return field.ErrorList{field.Invalid(path, state, "an approval can't be taken back; remove the machine by deleting it")}
	case was == ichor.ApprovalRejected && state != was:
		return field.ErrorList{field.Invalid(path, state, "a rejected machine can't be approved; delete it, and it is found again as pending")}
	}
	return nil
}

// validateNoTwin refuses to approve one machine twice, under two names: the second would take a slot of its own, and
// removing it would wipe the first. A person's word that they are distinct doesn't change what they are.
func validateNoTwin(machine *ichor.TalosMachine, facts ApprovalFacts, path *field.Path) field.ErrorList {
	id := identity.Identity(machine.Spec.Identity)
	for i := range facts.Others {
		other := &facts.Others[i]
		if other.Spec.ApprovalState == ichor.ApprovalApproved && identity.SameMachine(id, identity.Identity(other.Spec.Identity)) {
			return field.ErrorList{field.Invalid(path, DescribeIdentity(machine.Spec.Identity),
				fmt.Sprintf("is machine %s, which is approved already; resolve this one as SameAs it", other.Name))}
		}
	}
	return nil
}

func validateShown(approval *ichor.MachineApproval, path *field.Path) field.ErrorList {
	if approval == nil || approval.MaintenanceFingerprint == "" {
		return field.ErrorList{field.Required(path, "the fingerprint that the approver was shown (status.maintenanceFingerprint), so that no other machine is approved in its place")}
	}
	return fingerprint(approval.MaintenanceFingerprint, path)
}

// validateFrozen refuses to change what can't change on a machine that is approved.
func validateFrozen(spec, was *ichor.TalosMachineSpec, path *field.Path) field.ErrorList {
	const why = "can't be changed once the machine is approved; remove the machine and approve it again"
	errs := immutable(spec.ClusterRef.Name, was.ClusterRef.Name, path.Child("clusterRef", "name"), why)
	errs = append(errs, immutable(spec.Role, was.Role, path.Child("role"), why)...)
	if was.Role == ichor.RoleControlPlane {
		errs = append(errs, immutable(spec.Hostname, was.Hostname, path.Child("hostname"), why)...)
	}
	if !apiequality.Semantic.DeepEqual(systemDisks(spec.Disks), systemDisks(was.Disks)) {
		errs = append(errs, field.Invalid(path.Child("disks"), systemDisks(spec.Disks), "the system disk "+why))
	}
	return errs
}

func systemDisks(disks []ichor.MachineDisk) []ichor.DiskMatch {
	var matches []ichor.DiskMatch
	for _, disk := range disks {
		if disk.Role == ichor.DiskSystem {
			matches = append(matches, disk.Match)
		}
	}
	return matches
}

func validateCluster(name string, cluster *ichor.TalosCluster, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "the TalosCluster that the machine is to belong to")}
	case cluster == nil:
		return field.ErrorList{field.NotFound(path, name)}
	case cluster.DeletionTimestamp != nil:
		return field.ErrorList{field.Invalid(path, name, "the cluster is being deleted")}
	}
	return nil
}

func validateHostname(machine *ichor.TalosMachine, facts ApprovalFacts, path *field.Path) field.ErrorList {
	hostname := machine.Spec.Hostname
	if hostname == "" {
		return nil
	}
	if msgs := utilvalidation.IsDNS1123Label(hostname); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(path, hostname, strings.Join(msgs, "; "))}
	}
	for i := range facts.Others {
		other := &facts.Others[i]
		if other.Spec.ApprovalState != ichor.ApprovalApproved || other.Spec.ClusterRef.Name != machine.Spec.ClusterRef.Name {
			continue
		}
		if other.Spec.Hostname == hostname || other.Spec.Hostname == "" && (other.Status.Hostname == hostname || other.Status.NodeName == hostname) {
			return field.ErrorList{field.Invalid(path, hostname, fmt.Sprintf("is the hostname of machine %s", other.Name))}
		}
	}
	return nil
}
