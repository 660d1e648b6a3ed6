// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const head = "apiVersion: cli.ichor.maesh.dev/v1alpha1\nkind: ApprovalPlan\n"

// UUIDs of the machines A to D.
const (
	uuidA = "4c4c4544-0051-3610-8052-b4c04f4c3131"
	uuidB = "4c4c4544-0051-3610-8052-b4c04f4c3132"
	junk  = "03000200-0400-0500-0006-000700080009"
)

func waiting(name, serial, uuid, digit string) v1alpha1.TalosMachine {
	mac := "02:00:5e:00:53:0" + digit
	return v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + digit)},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, ApprovalState: v1alpha1.ApprovalPending, Origin: v1alpha1.MachineDiscovered,
			Identity: v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: serial, MACAddresses: []string{mac}},
		},
		Status: v1alpha1.TalosMachineStatus{
			Addresses: []string{"10.0.0.6" + digit}, MaintenanceFingerprint: "fingerprint" + digit + "=",
			Inventory: &v1alpha1.MachineInventory{
				Disks: []v1alpha1.DiskInventory{{Device: "/dev/nvme0n1", Size: resource.MustParse("512G"), Serial: "NVME" + digit, WWID: "eui.0" + digit, Transport: "nvme"}},
				Links: []v1alpha1.LinkInventory{
					{Name: "enp1s0", PermanentMAC: mac, Up: true, Addresses: []string{"10.0.0.6" + digit + "/24"}},
					{Name: "enp2s0", PermanentMAC: "02:00:5e:00:54:0" + digit},
				},
			},
		},
	}
}

// rack is a cluster that wants three control planes and has one; A and B wait, C has two disks, D and E share a junk UUID
// and F was approved.
func rack() Facts {
	a, b := waiting(uuidA, "SER-A", uuidA, "1"), waiting(uuidB, "SER-B", uuidB, "2")
	c := waiting("weak-c", "SER-C", junk, "3")
	c.Status.Inventory.Disks = append(c.Status.Inventory.Disks, v1alpha1.DiskInventory{Device: "/dev/sda", Size: resource.MustParse("4T"), Serial: "HDD3", Transport: "sata", Signature: "xfs"})
	d, e := waiting("weak-d", "TWIN", junk, "4"), waiting("weak-e", "TWIN", junk, "5")
	f := waiting("4c4c4544-0051-3610-8052-b4c04f4c3136", "SER-F", "4c4c4544-0051-3610-8052-b4c04f4c3136", "6")
	vlan := int32(40)
	f.Spec.ApprovalState, f.Spec.Role, f.Spec.Hostname = v1alpha1.ApprovalApproved, v1alpha1.RoleWorker, "worker-9"
	f.Spec.NodeLabels = map[string]string{"rack": "1"}
	f.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "NVME6"}, Role: v1alpha1.DiskSystem}}
	f.Spec.Network = &v1alpha1.MachineNetwork{
		Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:06"}, Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.0.0.19/24"}, Gateway: "10.0.0.1", VLAN: &vlan,
	}
	f.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: "fingerprint6="}
	rejected := waiting("weak-r", "SER-R", "", "7")
	rejected.Spec.ApprovalState = v1alpha1.ApprovalRejected
	return Facts{
		Machines: []v1alpha1.TalosMachine{a, b, c, d, e, f, rejected},
		Clusters: []v1alpha1.TalosCluster{{
			ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.TalosClusterSpec{ControlPlane: v1alpha1.ControlPlane{Count: 3}},
			Status: v1alpha1.TalosClusterStatus{ControlPlanes: v1alpha1.ControlPlaneCounts{Approved: 3, Limit: 4}},
		}},
		Blocked: func(machine *v1alpha1.TalosMachine) error {
			if machine.Spec.ApprovalState == v1alpha1.ApprovalRejected {
				return errors.New("it was rejected")
			}
			return nil
		},
	}
}

// read reads a plan that is all right so far.
func read(t *testing.T, text string) []*Item {
	t.Helper()
	items, faults := Read("plan.yaml", strings.NewReader(text))
	if err := Join(faults); err != nil {
		t.Fatalf("reading failed: %v\n%s", err, text)
	}
	return items
}

// told is one line for each fault.
func told(faults []*Fault) []string {
	var lines []string
	for _, fault := range faults {
		lines = append(lines, fault.Error())
	}
	return lines
}
