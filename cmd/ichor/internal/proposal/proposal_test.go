// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func disk(device, size, serial, transport string) v1alpha1.DiskInventory {
	return v1alpha1.DiskInventory{Device: device, Size: resource.MustParse(size), Serial: serial, Transport: transport}
}

func with(disk v1alpha1.DiskInventory, change func(*v1alpha1.DiskInventory)) v1alpha1.DiskInventory {
	change(&disk)
	return disk
}

func machineWith(disks ...v1alpha1.DiskInventory) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "m-1"},
		Spec:       v1alpha1.TalosMachineSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}},
		Status: v1alpha1.TalosMachineStatus{
			Addresses: []string{"10.0.0.61"}, MaintenanceFingerprint: "shown=",
			Inventory: &v1alpha1.MachineInventory{
				Disks: disks,
				Links: []v1alpha1.LinkInventory{
					{Name: "eth0", PermanentMAC: "02:00:5e:00:53:01"},
					{Name: "eth1", PermanentMAC: "02:00:5e:00:53:02", Up: true, Addresses: []string{"10.0.0.61/24"}},
					{Name: "eth2", PermanentMAC: "02:00:5e:00:53:03", Up: true},
					{Name: "bond0", MAC: "02:00:5e:00:53:02", Up: true},
				},
			},
		},
	}
}

func TestInstallDiskIsProposed(t *testing.T) {
	t.Parallel()
	nvme := disk("/dev/nvme0n1", "512G", "S1", "nvme")
	for _, test := range []struct {
		name  string
		disks []v1alpha1.DiskInventory
		want  []v1alpha1.MachineDisk
		why   string
	}{
		{"with one disk, by its serial number", []v1alpha1.DiskInventory{nvme}, []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}, ""},
		{"never a USB stick beside the one disk", []v1alpha1.DiskInventory{disk("/dev/sda", "64G", "STICK", "usb"), nvme}, []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}, ""},
		{"never a USB stick, even if it is alone", []v1alpha1.DiskInventory{disk("/dev/sda", "64G", "STICK", "usb")}, nil, "no disk is fit for it"},
		{"never a memory card", []v1alpha1.DiskInventory{disk("/dev/mmcblk0", "64G", "CARD", "mmc")}, nil, "no disk is fit for it"},
		{"never a CD drive", []v1alpha1.DiskInventory{with(disk("/dev/sr0", "20G", "CD", "sata"), func(d *v1alpha1.DiskInventory) { d.CDROM = true })}, nil, "no disk is fit for it"},
		{"never what is read-only", []v1alpha1.DiskInventory{with(nvme, func(d *v1alpha1.DiskInventory) { d.ReadOnly = true })}, nil, "no disk is fit for it"},
		{"never what is below 10 GiB", []v1alpha1.DiskInventory{disk("/dev/sda", "10737418239", "S1", "sata")}, nil, "no disk is fit for it"},
		{"of exactly 10 GiB", []v1alpha1.DiskInventory{disk("/dev/sda", "10Gi", "S1", "sata")}, []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}, ""},
		{"never of two that are fit", []v1alpha1.DiskInventory{nvme, disk("/dev/sda", "4T", "S2", "sata")}, nil, "2 disks are fit for it: /dev/nvme0n1 (serial S1), /dev/sda (serial S2)"},
		{"by WWID where the serial number is of two disks", []v1alpha1.DiskInventory{
			with(nvme, func(d *v1alpha1.DiskInventory) { d.WWID = "eui.01" }),
			with(disk("/dev/sda", "4T", "S1", "usb"), func(d *v1alpha1.DiskInventory) { d.WWID = "naa.02" }),
		}, []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{WWID: "eui.01"}, Role: v1alpha1.DiskSystem}}, ""},
		{"never what can't be told from others", []v1alpha1.DiskInventory{disk("/dev/sda", "4T", "", "sata")}, nil, "no disk is fit for it"},
		{"never before the hardware was seen", nil, nil, "no disk is fit for it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := Propose(Facts{Machine: machineWith(test.disks...)})
			if diff := cmp.Diff(test.want, got.Disks); diff != "" {
				t.Errorf("disks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.why, got.NoSystemDisk); diff != "" {
				t.Errorf("why not (-want +got):\n%s", diff)
			}
		})
	}
}

func approved(hostname string, role v1alpha1.MachineRole) v1alpha1.TalosMachine {
	return v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{
		ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Hostname: hostname, Role: role, ApprovalState: v1alpha1.ApprovalApproved,
	}}
}

func TestRoleAndHostnameComeNext(t *testing.T) {
	t.Parallel()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.TalosClusterSpec{ControlPlane: v1alpha1.ControlPlane{Count: 3}}}
	for _, test := range []struct {
		name     string
		machines []v1alpha1.TalosMachine
		role     v1alpha1.MachineRole
		hostname string
	}{
		{"the first machine", nil, v1alpha1.RoleControlPlane, "cp-1"},
		{"after one control plane", []v1alpha1.TalosMachine{approved("cp-1", v1alpha1.RoleControlPlane)}, v1alpha1.RoleControlPlane, "cp-2"},
		{"a numbering with zeros", []v1alpha1.TalosMachine{approved("rack2-node09", v1alpha1.RoleControlPlane)}, v1alpha1.RoleControlPlane, "rack2-node10"},
		{"a full control plane", []v1alpha1.TalosMachine{
			approved("cp-1", v1alpha1.RoleControlPlane), approved("cp-2", v1alpha1.RoleControlPlane), approved("cp-4", v1alpha1.RoleControlPlane),
		}, v1alpha1.RoleWorker, "worker-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := Propose(Facts{Machine: machineWith(), Cluster: cluster, Machines: test.machines})
			if got.Role != test.role || got.Hostname != test.hostname {
				t.Errorf("got %s %q, want %s %q", got.Role, got.Hostname, test.role, test.hostname)
			}
		})
	}
}

func TestProposalsOneAfterAnother(t *testing.T) {
	t.Parallel()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.TalosClusterSpec{ControlPlane: v1alpha1.ControlPlane{Count: 3}}}
	machines := []v1alpha1.TalosMachine{approved("cp-1", v1alpha1.RoleControlPlane)}
	for _, name := range []string{"m-1", "m-2", "m-3", "m-4"} {
		machine := machineWith(disk("/dev/nvme0n1", "512G", "S1", "nvme"))
		machine.Name = name
		machines = append(machines, *machine)
	}
	sequence := NewSequence(machines)
	var got []string
	for n := range machines[1:] {
		proposed := Propose(sequence.Facts(&machines[n+1], cluster)).Decision
		sequence.Decided(&machines[n+1], proposed)
		got = append(got, string(proposed.Role)+" "+proposed.Hostname)
	}
	want := []string{"controlplane cp-2", "controlplane cp-3", "worker worker-1", "worker worker-2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("proposals (-want +got):\n%s", diff)
	}
	if machines[1].Spec.Hostname != "" {
		t.Errorf("the machine itself was changed: %+v", machines[1].Spec)
	}
}

func TestFlagsDecide(t *testing.T) {
	t.Parallel()
	machine := machineWith(
		with(disk("/dev/nvme0n1", "512G", "S1", "nvme"), func(d *v1alpha1.DiskInventory) { d.WWID = "eui.01" }),
		disk("/dev/sda", "4T", "S2", "sata"),
	)
	vlan := int32(40)
	system := v1alpha1.MachineDisk{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}
	for _, test := range []struct {
		name    string
		choices Choices
		want    Decision
	}{
		{"a path becomes the disk's serial number", Choices{Role: "worker", InstallDisk: "/dev/nvme0n1"}, Decision{Role: "worker", Disks: []v1alpha1.MachineDisk{system}}},
		{"a WWID too", Choices{InstallDisk: "eui.01"}, Decision{Disks: []v1alpha1.MachineDisk{system}}},
		{"a user volume with a name", Choices{InstallDisk: "S1", Disks: []string{"serial=S2:userVolume:data"}}, Decision{
			Disks: []v1alpha1.MachineDisk{system, {Match: v1alpha1.DiskMatch{Serial: "S2"}, Role: v1alpha1.DiskUserVolume, Name: "data"}},
		}},
		{"the system disk by --disk", Choices{Disks: []string{"wwid=eui.01:system"}}, Decision{Disks: []v1alpha1.MachineDisk{system}}},
		{"control plane spelled with a hyphen", Choices{Role: "control-plane"}, Decision{Role: "controlplane"}},
		{"a static address on the interface that answers", Choices{Addresses: []string{"10.0.0.11/24"}, Gateway: "10.0.0.1", VLAN: 40, Nameservers: []string{"10.0.0.1"}}, Decision{
			Network: &v1alpha1.MachineNetwork{
				Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:02"}, Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.0.0.11/24"},
				Gateway: "10.0.0.1", VLAN: &vlan, Nameservers: []string{"10.0.0.1"},
			},
		}},
		{"DHCP on an interface by its name", Choices{Interface: "eth2"}, Decision{
			Network: &v1alpha1.MachineNetwork{Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:03"}, Addressing: v1alpha1.AddressingDHCP},
		}},
		{"an interface by its MAC address in capitals", Choices{Interface: "02-00-5E-00-53-01"}, Decision{
			Network: &v1alpha1.MachineNetwork{Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:01"}, Addressing: v1alpha1.AddressingDHCP},
		}},
		{"no flag leaves the network alone", Choices{Hostname: "cp-7"}, Decision{Hostname: "cp-7"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, faults := test.choices.Decide(Decision{}, machine)
			if len(faults) > 0 {
				t.Fatalf("faults: %v", faults)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlagsAreRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	machine := machineWith(
		disk("/dev/nvme0n1", "512G", "S1", "nvme"), disk("/dev/sda", "1G", "S2", "sata"),
		with(disk("/dev/sr0", "20G", "CD", "sata"), func(d *v1alpha1.DiskInventory) { d.CDROM = true }),
		disk("/dev/sdb", "4T", "TWIN", "sata"), disk("/dev/sdc", "4T", "TWIN", "sata"),
	)
	choices := Choices{
		Role: "boss", InstallDisk: "S9", Interface: "eth9", Addresses: []string{"10.0.0.11"},
		Disks: []string{"S1", "S1:userVolume", "S1:storage:x", "CD:storage", "S1:storage", "/dev/nvme0n1:unused", "TWIN:storage"},
	}
	_, faults := choices.Decide(Decision{}, machine)
	text := make([]string, 0, len(faults))
	for _, fault := range faults {
		text = append(text, fault.Error())
	}
	for _, want := range []string{
		`--role: "boss" is neither controlplane nor worker`,
		`--install-disk: the machine has no disk "S9"; it has /dev/nvme0n1 (serial S1)`,
		`--disk S1: want DISK:ROLE`,
		`--disk S1:userVolume: a userVolume needs a name`,
		`--disk S1:storage:x: only a userVolume has a name`,
		`--disk CD:storage: /dev/sr0 can't be used: a CD drive`,
		`--disk /dev/nvme0n1:unused: /dev/nvme0n1 was given two roles`,
		`--disk TWIN:storage: "TWIN" fits 2 disks: /dev/sdb (serial TWIN), /dev/sdc (serial TWIN)`,
		`--interface: the machine has no interface "eth9"; it has eth1 (02:00:5e:00:53:02)`,
		`--address: "10.0.0.11" is no address with a prefix length`,
	} {
		if !strings.Contains(strings.Join(text, "\n"), want) {
			t.Errorf("no fault says %q; got:\n%s", want, strings.Join(text, "\n"))
		}
	}
}

func TestApprovalEchoesWhatWasShown(t *testing.T) {
	t.Parallel()
	shown := machineWith(disk("/dev/sda", "4T", "S2", "sata"))
	shown.ResourceVersion = "42"
	sent := Decision{Cluster: "prod", Role: v1alpha1.RoleWorker, Reason: "rack 1"}.Approve(shown)
	want := &v1alpha1.MachineApproval{MaintenanceFingerprint: "shown=", Reason: "rack 1"}
	if diff := cmp.Diff(want, sent.Spec.Approval); diff != "" {
		t.Errorf("approval (-want +got):\n%s", diff)
	}
	if sent.ResourceVersion != "42" {
		t.Errorf("resourceVersion %q, want that of the object shown", sent.ResourceVersion)
	}
	if shown.Spec.Approval != nil {
		t.Error("the object that was shown was changed")
	}
}

func TestWipedDisksAreThoseThatTalosFormats(t *testing.T) {
	t.Parallel()
	machine := machineWith(disk("/dev/sda", "4T", "A", "sata"), disk("/dev/sdb", "4T", "B", "sata"), disk("/dev/sdc", "4T", "C", "sata"), disk("/dev/sdd", "4T", "D", "sata"))
	decision := Decision{Disks: []v1alpha1.MachineDisk{
		{Match: v1alpha1.DiskMatch{Serial: "A"}, Role: v1alpha1.DiskSystem},
		{Match: v1alpha1.DiskMatch{Serial: "B"}, Role: v1alpha1.DiskUserVolume, Name: "data"},
		{Match: v1alpha1.DiskMatch{Serial: "C"}, Role: v1alpha1.DiskStorage},
	}}
	var devices []string
	for _, disk := range decision.Wiped(machine.Status.Inventory) {
		devices = append(devices, disk.Device)
	}
	if diff := cmp.Diff([]string{"/dev/sda", "/dev/sdb"}, devices); diff != "" {
		t.Errorf("wiped (-want +got):\n%s", diff)
	}
}
