// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

const mac = "02:00:5e:00:53:01"

var shown = base64.StdEncoding.EncodeToString(sha256.New().Sum(nil))

func pending() *ichor.TalosMachine {
	m := &ichor.TalosMachine{}
	m.Name = "4c4c4544-0051-3610-8052-b4c04f4c3132"
	m.Spec = ichor.TalosMachineSpec{
		ClusterRef: ichor.ClusterReference{Name: "prod"}, Origin: ichor.MachineDiscovered, ApprovalState: ichor.ApprovalPending,
		Identity:       ichor.MachineIdentity{UUID: m.Name, SerialNumber: "SN", MACAddresses: []string{mac}},
		DeletionPolicy: ichor.DeletionReset,
	}
	m.Status.MaintenanceFingerprint = shown
	m.Status.Inventory = &ichor.MachineInventory{
		Disks: []ichor.DiskInventory{
			{Device: "/dev/nvme0n1", Size: resource.MustParse("512G"), Serial: "S1", WWID: "eui.01", Transport: "nvme"},
			{Device: "/dev/sda", Size: resource.MustParse("4T"), Serial: "S2", WWID: "naa.02", Rotational: true},
			{Device: "/dev/sdb", Size: resource.MustParse("8Gi"), Serial: "SMALL"},
			{Device: "/dev/sdc", Size: resource.MustParse("64G"), Serial: "STICK", Transport: "usb", Signature: "xfs"},
			{Device: "/dev/sdd", Size: resource.MustParse("1T"), Serial: "RO", ReadOnly: true},
			{Device: "/dev/sr0", Size: resource.MustParse("11Gi"), Serial: "CD", CDROM: true},
			{Device: "/dev/sde", Size: resource.MustParse("1T"), Serial: "TWIN", WWID: "naa.11"},
			{Device: "/dev/sdf", Size: resource.MustParse("1T"), Serial: "TWIN", WWID: "naa.12"},
		},
		Links: []ichor.LinkInventory{{Name: "enp1s0", PermanentMAC: mac}, {Name: "enp2s0", PermanentMAC: "02:00:5e:00:53:02"}},
	}
	return m
}

func approved() *ichor.TalosMachine {
	m := pending()
	m.Spec.ApprovalState, m.Spec.Role = ichor.ApprovalApproved, ichor.RoleControlPlane
	m.Spec.Hostname = "cp-1"
	m.Spec.Approval = &ichor.MachineApproval{MaintenanceFingerprint: shown}
	m.Spec.Disks = []ichor.MachineDisk{disk("S1", ichor.DiskSystem, "")}
	return m
}

func disk(serial string, role ichor.DiskRole, name string) ichor.MachineDisk {
	return ichor.MachineDisk{Match: ichor.DiskMatch{Serial: serial}, Role: role, Name: name}
}

func static(addresses ...string) *ichor.MachineNetwork {
	return &ichor.MachineNetwork{Interface: ichor.InterfaceMatch{MAC: mac}, Addressing: ichor.AddressingStatic, Addresses: addresses}
}

func facts() validation.ApprovalFacts {
	cluster := &ichor.TalosCluster{}
	cluster.Name = "prod"
	cluster.Spec.Network = ichor.ClusterNetwork{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}}
	other := pending()
	other.Name = "other"
	other.Spec.Identity = ichor.MachineIdentity{SerialNumber: "OTHER", MACAddresses: []string{"02:00:5e:00:53:f0"}}
	other.Spec.ApprovalState, other.Spec.Hostname = ichor.ApprovalApproved, "taken"
	other.Spec.Network = static("10.0.0.77/24")
	other.Status.Addresses = []string{"10.0.0.78"}
	unnamed := other.DeepCopy()
	unnamed.Spec.Identity = ichor.MachineIdentity{SerialNumber: "UNNAMED", MACAddresses: []string{"02:00:5e:00:53:f1"}}
	unnamed.Name, unnamed.Spec.Hostname, unnamed.Status.Hostname = "unnamed", "", "chosen-by-talos"
	return validation.ApprovalFacts{Cluster: cluster, Others: []ichor.TalosMachine{*other, *unnamed}}
}

// faults prints each error as "field: what it says", so that a test can look for a part of it.
func faults(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Field+": "+err.ErrorBody())
	}
	return out
}

func expect(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	got := faults(errs)
	for _, w := range want {
		path, text, _ := strings.Cut(w, ": ")
		i := slices.IndexFunc(got, func(g string) bool { return strings.HasPrefix(g, path+": ") && strings.Contains(g, text) })
		if i < 0 {
			t.Errorf("no fault %q in %q", w, got)
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
	if len(got) > 0 {
		t.Errorf("unexpected faults: %q", got)
	}
}

func TestApproval(t *testing.T) {
	t.Parallel()
	vlan := func(id int32) *int32 { return &id }
	for name, tc := range map[string]struct {
		was   *ichor.TalosMachine
		make  func(*ichor.TalosMachine)
		facts func(*validation.ApprovalFacts)
		want  []string
	}{
		"a control plane on its fastest disk": {make: func(*ichor.TalosMachine) {}},
		"static address, gateway, VLAN and a volume": {make: func(m *ichor.TalosMachine) {
			m.Spec.Network = static("10.0.0.11/24", "2001:db8::11/64")
			m.Spec.Network.Gateway, m.Spec.Network.Nameservers, m.Spec.Network.VLAN = "10.0.0.1", []string{"10.0.0.1"}, vlan(40)
			m.Spec.Disks = append(m.Spec.Disks, disk("S2", ichor.DiskUserVolume, "data"), disk("RO", ichor.DiskUnused, ""), disk("STICK", ichor.DiskStorage, ""))
			m.Spec.NodeLabels = map[string]string{"rack": "1"}
		}},
		"hardware addresses in another spelling": {make: func(m *ichor.TalosMachine) {
			m.Spec.Network = static("10.0.0.11/24")
			m.Spec.Network.Interface.MAC = "02-00-5E-00-53-02"
		}},
		"a point-to-point network": {make: func(m *ichor.TalosMachine) { m.Spec.Network = static("10.0.0.0/31") }},
		"an adopted machine without anything decided but its role": {
			was: func() *ichor.TalosMachine {
				m := pending()
				m.Spec.Origin = ichor.MachineAdopted
				m.Status.Inventory = nil
				return m
			}(),
			make: func(m *ichor.TalosMachine) {
				m.Spec.Origin, m.Status.Inventory, m.Spec.Disks, m.Spec.Approval = ichor.MachineAdopted, nil, nil, &ichor.MachineApproval{}
			},
		},
		"everything is wrong at once": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.ClusterRef.Name, m.Spec.Role, m.Spec.Hostname = "nope", "boss", "Not_A_Name"
				m.Spec.Approval = nil
				m.Spec.Disks = []ichor.MachineDisk{disk("S9", ichor.DiskStorage, "")}
				m.Spec.Network = static("10.0.0.11")
				m.Spec.Network.Interface.MAC, m.Spec.Network.VLAN = "02:00:5e:00:53:09", vlan(4095)
				m.Spec.NodeLabels = map[string]string{"-": "x"}
			},
			facts: func(f *validation.ApprovalFacts) { f.Cluster = nil },
			want: []string{
				"spec.clusterRef.name: Not found: \"nope\"", "spec.role: Unsupported value: \"boss\"", "spec.hostname: \"Not_A_Name\"",
				"spec.approval.maintenanceFingerprint: Required", "spec.disks[0].match: it has /dev/nvme0n1 (serial S1, wwid eui.01)", "spec.disks: role system",
				"spec.network.addresses[0]: such as 10.0.0.11/24", "spec.network.interface.mac: it has enp1s0 (02:00:5e:00:53:01)", "spec.network.vlan: 4094",
				"spec.nodeLabels: \"-\"",
			},
		},
		"no cluster, no role": {
			make: func(m *ichor.TalosMachine) { m.Spec.ClusterRef.Name, m.Spec.Role = "", "" },
			want: []string{"spec.clusterRef.name: Required", "spec.role: Required"},
		},
		"a cluster that is being deleted": {
			make:  func(*ichor.TalosMachine) {},
			facts: func(f *validation.ApprovalFacts) { now := metav1.Now(); f.Cluster.DeletionTimestamp = &now },
			want:  []string{"spec.clusterRef.name: being deleted"},
		},
		"two system disks": {
			make: func(m *ichor.TalosMachine) { m.Spec.Disks = append(m.Spec.Disks, disk("S2", ichor.DiskSystem, "")) },
			want: []string{"spec.disks[1].role: exactly one"},
		},
		"two ephemeral disks": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Disks = append(m.Spec.Disks, disk("S2", ichor.DiskEphemeral, ""), disk("STICK", ichor.DiskEphemeral, ""))
			},
			want: []string{"spec.disks[2].role: at most one"},
		},
		"one disk twice": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Disks = append(m.Spec.Disks, ichor.MachineDisk{Match: ichor.DiskMatch{WWID: "eui.01"}, Role: ichor.DiskStorage})
			},
			want: []string{"spec.disks[1].match: spec.disks[0] gives a role already"},
		},
		"a serial number that two disks have": {
			make: func(m *ichor.TalosMachine) { m.Spec.Disks = append(m.Spec.Disks, disk("TWIN", ichor.DiskStorage, "")) },
			want: []string{"spec.disks[1].match: /dev/sde (serial TWIN, wwid naa.11), /dev/sdf"},
		},
		"a serial number that two disks have, with the WWID": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Disks = append(m.Spec.Disks, ichor.MachineDisk{Match: ichor.DiskMatch{Serial: "TWIN", WWID: "naa.12"}, Role: ichor.DiskStorage})
			},
		},
		"a disk by nothing": {
			make: func(m *ichor.TalosMachine) { m.Spec.Disks = append(m.Spec.Disks, disk("", ichor.DiskStorage, "")) },
			want: []string{"spec.disks[1].match: Required"},
		},
		"a read-only system disk": {
			make: func(m *ichor.TalosMachine) { m.Spec.Disks[0].Match.Serial = "RO" }, want: []string{"spec.disks[0].match: read-only"},
		},
		"an optical drive": {
			make: func(m *ichor.TalosMachine) { m.Spec.Disks[0].Match.Serial = "CD" }, want: []string{"spec.disks[0].match: optical"},
		},
		"a system disk of less than 10 GiB": {
			make: func(m *ichor.TalosMachine) { m.Spec.Disks[0].Match.Serial = "SMALL" }, want: []string{"spec.disks[0].match: has 8Gi; Talos needs at least 10Gi"},
		},
		"an unknown disk role": {
			make: func(m *ichor.TalosMachine) { m.Spec.Disks = append(m.Spec.Disks, disk("S2", "swap", "")) }, want: []string{"spec.disks[1].role: \"swap\""},
		},
		"names of volumes": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Disks = append(m.Spec.Disks, disk("S2", ichor.DiskUserVolume, ""), disk("STICK", ichor.DiskUserVolume, "not_ok"),
					ichor.MachineDisk{Match: ichor.DiskMatch{WWID: "naa.11"}, Role: ichor.DiskUserVolume, Name: "data"},
					ichor.MachineDisk{Match: ichor.DiskMatch{WWID: "naa.12"}, Role: ichor.DiskUserVolume, Name: "data"})
				m.Spec.Disks[0].Name = "x"
			},
			want: []string{"spec.disks[0].name: userVolume", "spec.disks[1].name: Required", "spec.disks[2].name: \"not_ok\"", "spec.disks[4].name: Duplicate"},
		},
		"an address of nobody": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Network = static("10.0.0.0/24", "10.0.0.255/24", "nonsense", "224.0.0.5/24")
			},
			want: []string{"spec.network.addresses[0]: first or last", "spec.network.addresses[1]: first or last", "spec.network.addresses[2]: \"nonsense\"", "spec.network.addresses[3]: one host"},
		},
		"addresses of other machines, and one twice": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Network = static("10.0.0.77/24", "10.0.0.78/24", "10.0.0.9/24", "10.0.0.9/24")
			},
			want: []string{"spec.network.addresses[0]: held by machine", "spec.network.addresses[1]: held by machine", "spec.network.addresses[3]: Duplicate"},
		},
		"a gateway in none of the networks": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Network = static("10.0.0.11/24")
				m.Spec.Network.Gateway = "10.0.1.1"
			},
			want: []string{"spec.network.gateway: 10.0.0.0/24"},
		},
		"the machine as its own gateway": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Network = static("10.0.0.11/24")
				m.Spec.Network.Gateway = "10.0.0.11"
			},
			want: []string{"spec.network.gateway: own address"},
		},
		"static without an address": {
			make: func(m *ichor.TalosMachine) { m.Spec.Network = static() }, want: []string{"spec.network.addresses: Required"},
		},
		"DHCP with addresses": {
			make: func(m *ichor.TalosMachine) {
				m.Spec.Network = static("10.0.0.11/24")
				m.Spec.Network.Addressing, m.Spec.Network.Gateway = ichor.AddressingDHCP, "10.0.0.1"
			},
			want: []string{"spec.network.addresses: static", "spec.network.gateway: static"},
		},
		"VLAN 0": {
			make: func(m *ichor.TalosMachine) { m.Spec.Network = static("10.0.0.11/24"); m.Spec.Network.VLAN = vlan(0) }, want: []string{"spec.network.vlan: 1"},
		},
		"a hostname that another machine has": {
			make: func(m *ichor.TalosMachine) { m.Spec.Hostname = "taken" }, want: []string{"spec.hostname: machine other"},
		},
		"a hostname that Talos chose for another machine": {
			make: func(m *ichor.TalosMachine) { m.Spec.Hostname = "chosen-by-talos" }, want: []string{"spec.hostname: machine unnamed"},
		},
		"a fingerprint that is none": {
			make: func(m *ichor.TalosMachine) { m.Spec.Approval.MaintenanceFingerprint = "abc" }, want: []string{"spec.approval.maintenanceFingerprint: SHA-256"},
		},
		"a reason with a key in it": {
			make: func(m *ichor.TalosMachine) { m.Spec.Approval.Reason = "-----BEGIN EC PRIVATE KEY-----" }, want: []string{"spec.approval.reason: private key"},
		},
		"a reason of a thousand words": {
			make: func(m *ichor.TalosMachine) { m.Spec.Approval.Reason = strings.Repeat("word ", 1000) }, want: []string{"spec.approval.reason: 1024"},
		},
		"neither approved nor rejected": {
			make: func(m *ichor.TalosMachine) { m.Spec.ApprovalState = ichor.ApprovalPending }, want: []string{"spec.approvalState: \"pending\""},
		},
		"a rejected machine": {
			was:  func() *ichor.TalosMachine { m := pending(); m.Spec.ApprovalState = ichor.ApprovalRejected; return m }(),
			make: func(*ichor.TalosMachine) {}, want: []string{"spec.approvalState: delete it, and it is found again"},
		},
		"an approval is taken back": {
			was: approved(), make: func(m *ichor.TalosMachine) { m.Spec.ApprovalState = ichor.ApprovalRejected }, want: []string{"spec.approvalState: can't be taken back"},
		},
		"what is frozen of an approved control plane": {
			was: approved(),
			make: func(m *ichor.TalosMachine) {
				m.Spec.Role, m.Spec.Hostname = ichor.RoleWorker, "cp-2"
				m.Spec.Disks[0].Match.Serial = "S2"
			},
			want: []string{"spec.role: once the machine is approved", "spec.hostname: once the machine is approved", "spec.disks: the system disk"},
		},
		"labels, network and other disks of an approved machine": {
			was: approved(),
			make: func(m *ichor.TalosMachine) {
				m.Spec.NodeLabels, m.Spec.Network = map[string]string{"rack": "2"}, static("10.0.0.11/24")
				m.Spec.Disks = append(m.Spec.Disks, disk("S2", ichor.DiskUserVolume, "data"))
			},
		},
		"a label of an approved machine of which a disk died since": {
			was: func() *ichor.TalosMachine { m := approved(); m.Status.Inventory.Disks = nil; return m }(),
			make: func(m *ichor.TalosMachine) {
				m.Status.Inventory.Disks = nil
				m.Spec.NodeLabels = map[string]string{"rack": "2"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was := tc.was
			if was == nil {
				was = pending()
			}
			m, f := approved(), facts()
			tc.make(m)
			if tc.facts != nil {
				tc.facts(&f)
			}
			expect(t, validation.ValidateTalosMachineApprovalUpdate(m, was, f), tc.want...)
		})
	}
}

func TestApprovalWarnings(t *testing.T) {
	t.Parallel()
	m, f := approved(), facts()
	m.Spec.Role = ichor.RoleWorker
	m.Spec.Disks = []ichor.MachineDisk{disk("S2", ichor.DiskSystem, ""), disk("STICK", ichor.DiskUserVolume, "data")}
	m.Spec.Network = static("10.96.0.5/24")
	m.Spec.NodeLabels = map[string]string{"node-role.kubernetes.io/worker": "", "rack": "1"}
	m.Status.SchematicID = strings.Repeat("a", 64)
	f.Cluster.Spec.Install.SchematicID = strings.Repeat("b", 64)
	f.Cluster.Spec.Hardening.SecureBoot = true
	got := validation.ApprovalWarnings(m, f)
	for _, want := range []string{"spinning", "USB", "holds data (xfs)", "own Node", "SecureBoot", "schematic", "10.96.0.0/12"} {
		if !slices.ContainsFunc(got, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("no warning of %q in %q", want, got)
		}
	}
	for _, warning := range got {
		if len(warning) > 120 {
			t.Errorf("warning of %d characters: %q", len(warning), warning)
		}
	}
	if quiet := validation.ApprovalWarnings(approved(), facts()); len(quiet) > 0 {
		t.Errorf("warnings of nothing: %q", quiet)
	}
}

func TestWarningsOfAKernelThatNoConfigurationLocksDown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		image      bool
		have, want ichor.KernelLockdown
		warns      bool
	}{
		"an image without":              {true, ichor.KernelLockdownNone, ichor.KernelLockdownIntegrity, true},
		"an image with less":            {true, ichor.KernelLockdownIntegrity, ichor.KernelLockdownConfidentiality, true},
		"an image with more":            {true, ichor.KernelLockdownConfidentiality, ichor.KernelLockdownIntegrity, false},
		"GRUB, which may be configured": {false, ichor.KernelLockdownNone, ichor.KernelLockdownIntegrity, false},
		"nothing asked for":             {true, ichor.KernelLockdownNone, ichor.KernelLockdownNone, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, f := approved(), facts()
			m.Status.Inventory.UnifiedKernelImage, m.Status.Inventory.KernelLockdown = tc.image, tc.have
			f.Cluster.Spec.Hardening.KernelLockdown = tc.want
			got := validation.ApprovalWarnings(m, f)
			if (len(got) > 0) != tc.warns {
				t.Fatalf("warnings %q", got)
			}
			for _, warning := range got {
				if len(warning) > 120 || !strings.Contains(warning, "add lockdown="+string(tc.want)) {
					t.Errorf("warning of %d characters: %q", len(warning), warning)
				}
			}
		})
	}
}

func TestIdentityDoubt(t *testing.T) {
	t.Parallel()
	condition := metav1.Condition{Type: v1alpha1.ConditionIdentityResolved, Status: metav1.ConditionFalse, Message: "another machine has its serial number"}
	for name, tc := range map[string]struct {
		change func(*ichor.TalosMachine)
		doubt  bool
	}{
		"a strong identity":        {func(*ichor.TalosMachine) {}, false},
		"a weak name":              {func(m *ichor.TalosMachine) { m.Name = "weak-0123456789abcdef0123" }, true},
		"the controller doubts it": {func(m *ichor.TalosMachine) { m.Status.Conditions = []metav1.Condition{condition} }, true},
		"a person said that it is distinct": {func(m *ichor.TalosMachine) {
			m.Name, m.Status.Conditions = "weak-0123456789abcdef0123", []metav1.Condition{condition}
			m.Spec.IdentityResolution = &ichor.IdentityResolution{Decision: ichor.IdentityDistinct}
		}, false},
		"a person said that it is another": {func(m *ichor.TalosMachine) {
			m.Spec.IdentityResolution = &ichor.IdentityResolution{Decision: ichor.IdentitySameAs, Machine: "other"}
		}, true},
	} {
		m := pending()
		tc.change(m)
		if doubt := validation.IdentityDoubt(m); (doubt != "") != tc.doubt {
			t.Errorf("%s: doubt %q, want some: %t", name, doubt, tc.doubt)
		}
	}
}

func TestValidationChangesNothing(t *testing.T) {
	t.Parallel()
	m, was, f := approved(), pending(), facts()
	before := m.DeepCopy()
	validation.ValidateTalosMachineApprovalUpdate(m, was, f)
	validation.ApprovalWarnings(m, f)
	if diff := cmp.Diff(before, m); diff != "" {
		t.Errorf("validation changed the object (-before +after):\n%s", diff)
	}
}

func TestAMachineIsApprovedOnce(t *testing.T) {
	t.Parallel()
	machine := approved()
	machine.Name = "weak-0123456789abcdef"
	machine.Spec.IdentityResolution = &ichor.IdentityResolution{Decision: ichor.IdentityDistinct}
	twin := approved()
	twin.Spec.Hostname = "cp-9"
	others := facts()
	others.Others = append(others.Others, *twin)
	errs := validation.ValidateTalosMachineApprovalUpdate(machine, pending(), others)
	if !slices.ContainsFunc(errs, func(err *field.Error) bool {
		return err.Field == "spec.identity" && strings.Contains(err.Detail, twin.Name)
	}) {
		t.Errorf("got %v, want spec.identity refused, naming %s", errs, twin.Name)
	}
}

func TestPrivateKeysAreRefusedInBase64Too(t *testing.T) {
	t.Parallel()
	key := "-----BEGIN ED25519 PRIVATE KEY-----\nMC4CAQA\n-----END ED25519 PRIVATE KEY-----\n"
	for name, reason := range map[string]string{"plain": key, "base64": "see " + base64.StdEncoding.EncodeToString([]byte(key)) + " there"} {
		machine := approved()
		machine.Spec.Approval.Reason = reason
		errs := validation.ValidateTalosMachineApprovalUpdate(machine, pending(), facts())
		if len(errs) != 1 || errs[0].Field != "spec.approval.reason" {
			t.Errorf("%s: got %v, want spec.approval.reason refused", name, errs)
		}
	}
}
