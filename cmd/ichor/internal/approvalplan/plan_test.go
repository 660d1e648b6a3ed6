// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestPlanDecides(t *testing.T) {
	t.Parallel()
	vlan := int32(40)
	system := func(match v1alpha1.DiskMatch) []v1alpha1.MachineDisk {
		return []v1alpha1.MachineDisk{{Match: match, Role: v1alpha1.DiskSystem}}
	}
	for _, test := range []struct {
		name, entry string
		machine     string
		want        proposal.Decision
	}{
		{"by serial number, with the only disk there is", "{serialNumber: ser-a, role: worker}", uuidA, proposal.Decision{Cluster: "prod", Role: "worker", Disks: system(v1alpha1.DiskMatch{Serial: "NVME1"})}},
		{"by UUID in capitals, as a control plane", "{uuid: " + strings.ToUpper(uuidB) + ", role: controlplane, hostname: cp-4, installDisk: {wwid: eui.02}}", uuidB, proposal.Decision{
			Cluster: "prod", Role: "controlplane", Hostname: "cp-4", Disks: system(v1alpha1.DiskMatch{WWID: "eui.02"}),
		}},
		{"by a MAC address with hyphens", "{macAddress: 02-00-5E-00-53-01, role: worker}", uuidA, proposal.Decision{Cluster: "prod", Role: "worker", Disks: system(v1alpha1.DiskMatch{Serial: "NVME1"})}},
		{"one of two with the same serial number, by its name too", "{serialNumber: TWIN, name: weak-d, role: worker}", "weak-d", proposal.Decision{Cluster: "prod", Role: "worker", Disks: system(v1alpha1.DiskMatch{Serial: "NVME4"})}},
		{"with all that can be said", `{serialNumber: SER-C, role: worker, hostname: box, nodeLabels: {rack: "1"}, reason: lab, installDisk: {serial: NVME3},
  disks: [{match: {serial: HDD3}, role: userVolume, name: data}], maintenanceFingerprint: fingerprint3=,
  network: {interface: {name: enp1s0}, addresses: [10.0.0.13/24], gateway: 10.0.0.1, nameservers: [10.0.0.1], vlan: 40}}`, "weak-c", proposal.Decision{
			Cluster: "prod", Role: "worker", Hostname: "box", Labels: map[string]string{"rack": "1"}, Reason: "lab",
			Disks: append(system(v1alpha1.DiskMatch{Serial: "NVME3"}), v1alpha1.MachineDisk{Match: v1alpha1.DiskMatch{Serial: "HDD3"}, Role: "userVolume", Name: "data"}),
			Network: &v1alpha1.MachineNetwork{
				Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:03"}, Addressing: "static", Addresses: []string{"10.0.0.13/24"}, Gateway: "10.0.0.1", Nameservers: []string{"10.0.0.1"}, VLAN: &vlan,
			},
		}},
		{"a disk beside the only one that is left", "{serialNumber: SER-A, role: worker, network: {vlan: 40}}", uuidA, proposal.Decision{
			Cluster: "prod", Role: "worker", Disks: system(v1alpha1.DiskMatch{Serial: "NVME1"}),
			Network: &v1alpha1.MachineNetwork{Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:01"}, Addressing: "dhcp", VLAN: &vlan},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			targets, faults := Plan(read(t, head+"machines:\n- "+test.entry+"\n"), rack())
			if len(faults) > 0 || len(targets) != 1 {
				t.Fatalf("%d targets, faults %v", len(targets), told(faults))
			}
			if targets[0].Machine.Name != test.machine || targets[0].Unchanged {
				t.Errorf("machine %s, unchanged %v; want %s", targets[0].Machine.Name, targets[0].Unchanged, test.machine)
			}
			if diff := cmp.Diff(test.want, targets[0].Decision); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, machines string
		code           int
		want           []string
	}{
		{"an entry without a key", "- {role: worker}", cli.ExitUsage, []string{"plan.yaml:4: machines[0]: doesn't say which machine"}},
		{"a junk UUID, though one machine has it", "- {uuid: " + junk + ", role: worker}", cli.ExitUsage, []string{"plan.yaml:4: uuid " + junk + ": can't tell a machine from others"}},
		{"a junk serial number", "- {serialNumber: To be filled by O.E.M., role: worker}", cli.ExitUsage, []string{"is what firmware has where nobody entered"}},
		{"a machine that isn't there, with one that is near", "- {serialNumber: SER-1, role: worker}\n- {serialNumber: XYZ123, role: worker}", cli.ExitBlocked, []string{
			"plan.yaml:4: serialNumber SER-1: none of the 7 machines that are known has it; did you mean SER-A?",
			"plan.yaml:5: serialNumber XYZ123: none of the 7 machines that are known has it; is it switched on",
		}},
		{"keys of two machines", "- {serialNumber: SER-A, uuid: " + uuidB + ", role: worker}", cli.ExitBlocked, []string{
			"no machine has all that the entry gives: serialNumber SER-A is machine " + uuidA + " (SER-A), uuid " + uuidB + " is machine " + uuidB + " (SER-B)",
		}},
		{"a key of two machines", "- {serialNumber: TWIN, role: worker}", cli.ExitBlocked, []string{"fits 2 machines: weak-d (TWIN), weak-e (TWIN); give the name too"}},
		{"two entries for one machine", "- {serialNumber: SER-A, role: worker}\n- {uuid: " + uuidA + ", role: worker}", cli.ExitUsage, []string{
			"plan.yaml:5: uuid " + uuidA + ": is machine " + uuidA + " (SER-A), which the entry at plan.yaml:4 is about already",
		}},
		{"a rejected machine", "- {serialNumber: SER-R, role: worker}", cli.ExitBlocked, []string{"plan.yaml:4: serialNumber SER-R: it was rejected"}},
		{"no role and no such cluster", "- serialNumber: SER-A\n  clusterRef:\n    name: other", cli.ExitUsage, []string{
			"plan.yaml:4: serialNumber SER-A: role: is missing", `plan.yaml:6: serialNumber SER-A: clusterRef.name: there is no cluster "other"; there are "prod"`,
		}},
		{"two disks and none named", "- {serialNumber: SER-C, role: worker}", cli.ExitUsage, []string{"installDisk: is missing, and can't be guessed: 2 disks are fit for it"}},
		{"a disk of another machine", "- serialNumber: SER-A\n  role: worker\n  installDisk:\n    serial: NVME2", cli.ExitUsage, []string{
			"plan.yaml:6: serialNumber SER-A: installDisk: the machine has no disk with that; it has /dev/nvme0n1 (serial NVME1); machine " + uuidB + " (SER-B) has one",
		}},
		{"one disk twice", "- serialNumber: SER-A\n  role: worker\n  installDisk: {serial: NVME1}\n  disks:\n  - {match: {wwid: eui.01}, role: storage}", cli.ExitUsage, []string{
			"plan.yaml:8: serialNumber SER-A: disks[0]: is /dev/nvme0n1, which installDisk gives a role already",
		}},
		{"two disks to install on", "- {serialNumber: SER-C, role: worker, installDisk: {serial: NVME3}, disks: [{match: {serial: HDD3}, role: system}]}", cli.ExitUsage, []string{"there is exactly one"}},
		{"another fingerprint than the console's", "- {serialNumber: SER-A, role: worker, maintenanceFingerprint: other=}", cli.ExitBlocked, []string{`the machine shows "fingerprint1=" now, not "other="`}},
		{"an interface that isn't there, an address without a prefix", "- {serialNumber: SER-A, role: worker, network: {interface: {name: eth9}, addresses: [10.0.0.1]}}", cli.ExitUsage, []string{
			`network.addresses[0]: "10.0.0.1" is no address with a prefix length`, `network.interface.name: the machine has no interface "eth9"`,
		}},
		{"a gateway without addresses", "- {serialNumber: SER-A, role: worker, network: {gateway: 10.0.0.1}}", cli.ExitUsage, []string{"network.gateway: is for static addresses, and there are none"}},
		{"one hostname and one address for two", "- {serialNumber: SER-A, role: worker, hostname: a, network: {addresses: [10.0.0.9/24]}}\n- {serialNumber: SER-B, role: worker, hostname: A, network: {addresses: [10.0.0.9/16]}}", cli.ExitUsage, []string{
			`plan.yaml:5: serialNumber SER-B: hostname: "A" is given to serialNumber SER-A at plan.yaml:4 too`,
			"plan.yaml:5: serialNumber SER-B: network.addresses[0]: 10.0.0.9/16 is given to serialNumber SER-A at plan.yaml:4 too",
		}},
		{"more control planes than the whole plan has room for", "- {serialNumber: SER-A, role: controlplane}\n- serialNumber: SER-B\n  role: controlplane", cli.ExitBlocked, []string{
			`plan.yaml:6: serialNumber SER-B: role: the plan makes 2 control planes of cluster "prod", which has 3 of at most 4: there is room for 1`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, faults := Plan(read(t, head+"machines:\n"+test.machines+"\n"), rack())
			got := told(faults)
			if len(got) != len(test.want) {
				t.Fatalf("%d faults, want %d:\n%s", len(got), len(test.want), strings.Join(got, "\n"))
			}
			for n, want := range test.want {
				if !strings.Contains(got[n], want) {
					t.Errorf("fault %d is\n%s\nwant it to say\n%s", n, got[n], want)
				}
			}
			if code := cli.Code(Join(faults)); code != test.code {
				t.Errorf("exit status %d, want %d", code, test.code)
			}
		})
	}
}

func TestPlanOfWhatIsApproved(t *testing.T) {
	t.Parallel()
	const same = `serialNumber: SER-F, role: worker, hostname: worker-9, nodeLabels: {rack: "1"}, network: {interface: {name: enp1s0}, addresses: [10.0.0.19/24], gateway: 10.0.0.1, vlan: 40}`
	for _, test := range []struct {
		name, entry string
		want        string // empty: unchanged
	}{
		{"as it was", "{" + same + ", installDisk: {serial: NVME6}}", ""},
		{"its disk by another name", "{" + same + ", installDisk: {wwid: eui.06}}", ""},
		{"with less said", "{serialNumber: SER-F, role: worker}", ""},
		{"a network without an interface said", "{serialNumber: SER-F, role: worker, network: {addresses: [10.0.0.19/24], gateway: 10.0.0.1, vlan: 40}}", ""},
		{"another role", "{serialNumber: SER-F, role: controlplane}", "role: the machine was approved with worker, the plan says controlplane; a plan changes nothing that was approved"},
		{"another hostname", "{serialNumber: SER-F, role: worker, hostname: worker-8}", "hostname: the machine was approved with worker-9, the plan says worker-8"},
		{"other labels", `{serialNumber: SER-F, role: worker, nodeLabels: {rack: "2"}}`, "nodeLabels: the machine was approved with rack=1, the plan says rack=2"},
		{"another install disk", "{serialNumber: SER-F, role: worker, installDisk: {serial: OTHER}}", "installDisk: the machine was approved with serial NVME6 as system, the plan says serial OTHER as system"},
		{"one more disk", "{serialNumber: SER-F, role: worker, disks: [{match: {serial: OTHER}, role: storage}]}", "disks: the machine was approved with none, the plan says serial OTHER as storage"},
		{"another address", "{serialNumber: SER-F, role: worker, network: {addresses: [10.0.0.20/24], gateway: 10.0.0.1, vlan: 40}}", "static 10.0.0.20/24"},
		{"another cluster", "{serialNumber: SER-F, role: worker, clusterRef: {name: lab}}", "clusterRef.name: the machine was approved with prod, the plan says lab"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			targets, faults := Plan(read(t, head+"machines:\n- "+test.entry+"\n"), rack())
			if test.want == "" {
				if len(faults) > 0 || len(targets) != 1 || !targets[0].Unchanged {
					t.Fatalf("want it unchanged; faults %v", told(faults))
				}
				return
			}
			if len(faults) != 1 || !strings.Contains(faults[0].Error(), test.want) || faults[0].Code != cli.ExitBlocked {
				t.Fatalf("faults %v, want one that says %q", told(faults), test.want)
			}
		})
	}
}

func TestCapacityForgivesAnApprovalThatWasCutShort(t *testing.T) {
	t.Parallel()
	facts := rack()
	facts.Clusters[0].Status.ControlPlanes.Approved = 4
	facts.Clusters[0].Status.ControlPlaneSlots = []v1alpha1.ControlPlaneSlot{{MachineUID: "uid-1"}}
	if _, faults := Plan(read(t, head+"machines:\n- {serialNumber: SER-A, role: controlplane}\n"), facts); len(faults) > 0 {
		t.Errorf("the machine has its slot already, but: %v", told(faults))
	}
}

func TestFaultsOfTheServerGetTheirLines(t *testing.T) {
	t.Parallel()
	item := read(t, head+`defaults:
  network:
    gateway: 10.0.0.1
machines:
- serialNumber: SER-C
  role: worker
  hostname: box
  installDisk:
    serial: NVME3
  disks:
  - match: {serial: HDD3}
    role: storage
  network:
    addresses:
    - 10.0.0.13/24
    - 10.0.0.14/24
  reason: because
`)[0]
	if _, faults := item.decide(&rack().Machines[2], rack()); len(faults) > 0 {
		t.Fatalf("faults: %v", told(faults))
	}
	for field, want := range map[string]int{
		"hostname": 9, "role": 8, "network.gateway": 5, "network.addresses[1]": 18, "network.interface.mac": 15, "network": 15,
		"disks[0].match": 10, "disks[1].match": 13, "disks[1].role": 14, "disks": 12, "approval.reason": 19, "clusterRef.name": 7, "": 7, "status.inventory": 7,
	} {
		if got := item.Position(field).Line; got != want {
			t.Errorf("%s is said to be in line %d, want %d", field, got, want)
		}
	}
}
