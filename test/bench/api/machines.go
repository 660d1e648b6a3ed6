// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/bench/api/rival"
)

// clusterName is the one cluster.
const clusterName = "bench"

// The machines by number: some are for the gates with a race, some for approvals, the rest make the fleet.
const (
	racers = 50
	// firstCandidate is the first that is approved and put back; they are judged by the right gate.
	firstCandidate = 2 * racers
	candidates     = 400
	// firstWatched is the first of those whose status changes while watchers watch.
	firstWatched = firstCandidate + candidates
	watched      = 100
	// fewestMachines is how many there are at least.
	fewestMachines = firstWatched + watched
)

// gateOf is the gate that judges a machine.
func gateOf(n int) string {
	switch {
	case n < racers:
		return rival.GateCache
	case n < 2*racers:
		return rival.GateLive
	}
	return rival.GateSwap
}

// nameOf is the UUID of the nth machine.
func nameOf(n int) string { return fmt.Sprintf("4c4c4544-0051-3610-8052-b4c0%08x", n) }

func macOf(n, link int) string {
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", n>>16, n>>8&255, n&255, link)
}

func fingerprintOf(n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "machine %d", n))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// newCluster is the cluster of a side.
func newCluster(group string, count int32) *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: group + "/v1alpha1", Kind: "TalosCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec: v1alpha1.TalosClusterSpec{
			SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "bench-secrets"},
			ControlPlane: v1alpha1.ControlPlane{Count: count, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10", Port: 6443}},
			Discovery:    v1alpha1.Discovery{Subnets: []v1alpha1.DiscoverySubnet{{CIDR: "10.0.0.0/16"}}, Interval: metav1.Duration{Duration: 5 * time.Minute}},
		},
	}
}

// newMachine is the nth machine of a side, as the controller enters it.
func newMachine(group string, n int) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: group + "/v1alpha1", Kind: "TalosMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(n), Labels: map[string]string{rival.GateLabel: gateOf(n), "rack": fmt.Sprintf("r%03d", n/40)}},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: clusterName},
			Identity: v1alpha1.MachineIdentity{
				UUID: nameOf(n), SerialNumber: fmt.Sprintf("CZJ%07d", n), MACAddresses: []string{macOf(n, 0), macOf(n, 1), macOf(n, 2), macOf(n, 3)},
			},
		},
	}
}

// seen is the status of the nth machine in maintenance mode: a server with eight disks and four links.
func seen(n int) v1alpha1.TalosMachineStatus {
	now := metav1.NewTime(time.Unix(1_800_000_000, 0).UTC())
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 1, LastTransitionTime: now}
	}
	address := fmt.Sprintf("10.0.%d.%d", n>>8&255, n&255)
	status := v1alpha1.TalosMachineStatus{
		ObservedGeneration: 1, Stage: v1alpha1.StageMaintenance, Phase: v1alpha1.PhasePending, Addresses: []string{address},
		Hostname: "talos-" + nameOf(n)[28:], MaintenanceFingerprint: fingerprintOf(n), TalosVersion: "v1.14.5",
		FingerprintHistory: []v1alpha1.FingerprintRecord{{Fingerprint: fingerprintOf(n), FirstSeen: now}},
		SchematicID:        "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionIdentityResolved, metav1.ConditionTrue, "Unique", "no other machine has the UUID, the serial number or an address of it"),
			condition(v1alpha1.ConditionReachable, metav1.ConditionTrue, "Answered", "the machine answers in maintenance mode at "+address),
			condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "NotApproved", "the machine waits for a person's approval"),
		},
		Inventory: &v1alpha1.MachineInventory{
			Manufacturer: "Dell Inc.", ProductName: "PowerEdge R760", Memory: resource.MustParse("512Gi"), SecureBoot: true,
			CPU: v1alpha1.CPUInventory{Model: "Intel(R) Xeon(R) Gold 6430", Sockets: 2, Cores: 64, Threads: 128},
		},
	}
	for d := range 8 {
		status.Inventory.Disks = append(status.Inventory.Disks, v1alpha1.DiskInventory{
			Device: fmt.Sprintf("/dev/nvme%dn1", d), Size: resource.MustParse("3840755982336"), Model: "Dell Ent NVMe v2 AGN RI U.2 3.84TB",
			Serial: fmt.Sprintf("S6CTNE0T%05d%d", n, d), WWID: fmt.Sprintf("eui.36435330%08x0025384%d", n, d), Transport: "nvme",
			BusPath: fmt.Sprintf("/pci0000:c7/0000:c7:0%d.0/0000:c8:00.0/nvme", d),
		})
	}
	for l := range 4 {
		status.Inventory.Links = append(status.Inventory.Links, v1alpha1.LinkInventory{
			Name: fmt.Sprintf("eno12%d99np%d", l, l), PermanentMAC: macOf(n, l), MAC: macOf(n, l), SpeedMegabits: 25000, Up: l < 2,
			Addresses: []string{address + "/16"}[:1-min(l, 1)],
		})
	}
	return status
}

// approve makes a decision of a machine as it was shown to the approver.
func approve(machine *v1alpha1.TalosMachine, role v1alpha1.MachineRole) {
	machine.Spec.ApprovalState, machine.Spec.Role = v1alpha1.ApprovalApproved, role
	machine.Spec.Hostname = "node-" + machine.Name[28:]
	machine.Spec.NodeLabels = map[string]string{"topology.kubernetes.io/zone": "a"}
	machine.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: machine.Status.MaintenanceFingerprint, By: operatorUser, At: ptr.To(metav1.Now().Rfc3339Copy())}
	disks := machine.Status.Inventory.Disks
	machine.Spec.Disks = []v1alpha1.MachineDisk{
		{Match: v1alpha1.DiskMatch{Serial: disks[0].Serial}, Role: v1alpha1.DiskSystem}, {Match: v1alpha1.DiskMatch{Serial: disks[1].Serial}, Role: v1alpha1.DiskStorage},
	}
}
