// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Names of the machines of a fleet.
const (
	ControlPlane = "11111111-0000-4000-8000-000000000001"
	Pending      = "22222222-0000-4000-8000-000000000002"
	TwoDisks     = "33333333-0000-4000-8000-000000000003"
	Doubtful     = "weak-44444444"
	Rejected     = "55555555-0000-4000-8000-000000000005"
)

// Fleet is a cluster with one control plane, a machine with one disk and one with two that wait for approval, a machine
// of doubtful identity and a rejected one.
func Fleet() []metav1.Object {
	cluster := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "cluster-uid", Generation: 1, CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour))},
		Spec: v1alpha1.TalosClusterSpec{
			TalosVersion: "v1.14.5", KubernetesVersion: "v1.36.6", SecretsPolicy: v1alpha1.SecretsPolicyRequire,
			SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
			ControlPlane: v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10", Port: 6443}},
			Network:      v1alpha1.ClusterNetwork{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}},
			Discovery:    v1alpha1.Discovery{Subnets: []v1alpha1.DiscoverySubnet{{CIDR: "10.0.0.0/24"}}, Interval: metav1.Duration{Duration: 5 * time.Minute}},
		},
		Status: v1alpha1.TalosClusterStatus{
			ControlPlanes: v1alpha1.ControlPlaneCounts{Approved: 1, Ready: 1, Limit: 4},
			Machines:      v1alpha1.MachineCounts{Pending: 3, Approved: 1, Ready: 1, Rejected: 1},
			EtcdMembers:   []v1alpha1.EtcdMember{{ID: "8e9e05c52164694d", Hostname: "cp-1", Machine: ControlPlane}},
			Discovery: v1alpha1.DiscoveryStatus{
				Phase: v1alpha1.DiscoveryIdle, ObservedGeneration: 1, Total: 256, Done: 256, Maintenance: 3, AlreadyConfigured: 2, NotTalos: 1, Unreachable: 250,
				Hosts: []v1alpha1.DiscoveredHost{{Address: "10.0.0.5", Class: v1alpha1.HostNotTalos, Message: "an SSH server"}},
			},
			Conditions: []metav1.Condition{condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "Answers", "")},
		},
	}
	running := machine(ControlPlane, "CP0001", 1, v1alpha1.ApprovalApproved)
	at := metav1.NewTime(Now.Add(-time.Hour))
	running.Spec.Role, running.Spec.Hostname = v1alpha1.RoleControlPlane, "cp-1"
	running.Spec.Approval = &v1alpha1.MachineApproval{By: "alice", At: &at}
	running.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "NVME1"}, Role: v1alpha1.DiskSystem}}
	running.Status.Phase, running.Status.Stage, running.Status.NodeName = v1alpha1.PhaseReady, v1alpha1.StageRunning, "cp-1"
	running.Status.SystemDisk = &v1alpha1.SystemDisk{Device: "/dev/nvme0n1", Serial: "NVME1"}
	running.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")}
	two := machine(TwoDisks, "TWO003", 3, v1alpha1.ApprovalPending)
	two.Labels = map[string]string{"rack": "1"}
	two.Status.Inventory.Disks = append(two.Status.Inventory.Disks, v1alpha1.DiskInventory{
		Device: "/dev/sda", Size: resource.MustParse("4T"), Model: "HDD B", Serial: "HDD3", Transport: "sata", Rotational: true, Signature: "xfs",
	})
	doubtful := machine(Doubtful, "", 4, v1alpha1.ApprovalPending)
	doubtful.Spec.Identity.UUID = "00000000-0000-0000-0000-000000000000"
	doubtful.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionIdentityResolved, metav1.ConditionFalse, v1alpha1.ReasonUnusableUUID, "its UUID is all zeros, as many boards have it")}
	rejected := machine(Rejected, "REJ005", 5, v1alpha1.ApprovalRejected)
	rejected.Spec.Approval = &v1alpha1.MachineApproval{By: "bob", At: &at, Reason: "lab"}
	rejected.Status.Phase = v1alpha1.PhaseRejected
	return []metav1.Object{cluster, running, machine(Pending, "ONE002", 2, v1alpha1.ApprovalPending), two, doubtful, rejected}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(Now.Add(-10 * time.Minute))}
}

func machine(name, serial string, number byte, state v1alpha1.ApprovalState) *v1alpha1.TalosMachine {
	digit := string('0' + rune(number))
	mac := "02:00:5e:00:53:0" + digit
	uuid := name
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + digit), CreationTimestamp: metav1.NewTime(Now.Add(-10 * time.Minute))},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Origin: v1alpha1.MachineDiscovered, ApprovalState: state,
			Identity: v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: serial, MACAddresses: []string{mac}},
		},
		Status: v1alpha1.TalosMachineStatus{
			Phase: v1alpha1.PhasePending, Stage: v1alpha1.StageMaintenance, Addresses: []string{"10.0.0.6" + digit},
			MaintenanceFingerprint: "fingerprint" + digit + "=", TalosVersion: "v1.13.9",
			Inventory: &v1alpha1.MachineInventory{
				Manufacturer: "Dell Inc.", ProductName: "PowerEdge R650", Memory: resource.MustParse("32Gi"),
				CPU: v1alpha1.CPUInventory{Model: "Xeon Gold 5318Y", Sockets: 1, Cores: 24, Threads: 48},
				Disks: []v1alpha1.DiskInventory{
					{Device: "/dev/nvme0n1", Size: resource.MustParse("512G"), Model: "NVMe A", Serial: "NVME" + digit, WWID: "eui.0" + digit, Transport: "nvme"},
				},
				Links: []v1alpha1.LinkInventory{
					{Name: "enp1s0", PermanentMAC: mac, MAC: mac, SpeedMegabits: 10000, Up: true, Addresses: []string{"10.0.0.6" + digit + "/24"}},
					{Name: "enp2s0", PermanentMAC: "02:00:5e:00:54:0" + digit, MAC: "02:00:5e:00:54:0" + digit},
				},
			},
		},
	}
}
