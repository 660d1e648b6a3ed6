// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var now = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

func shown() *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "m-1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Status: v1alpha1.TalosMachineStatus{
			MaintenanceFingerprint: "shown=",
			Inventory: &v1alpha1.MachineInventory{Disks: []v1alpha1.DiskInventory{
				{Device: "/dev/nvme0n1", Size: resource.MustParse("512G"), Model: "NVMe A", Serial: "S1", Signature: "gpt"},
				{Device: "/dev/sda", Size: resource.MustParse("4T"), Model: "HDD B", WWID: "naa.02", Signature: "xfs"},
			}},
		},
	}
}

func TestSummaryNamesWhatIsWipedAndWhatIsNot(t *testing.T) {
	t.Parallel()
	decision := proposal.Decision{
		Cluster: "prod", Role: v1alpha1.RoleControlPlane, Labels: map[string]string{"rack": "1", "a": "b"},
		Disks: []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}},
	}
	want := `To approve
  Machine      m-1
  Cluster      prod
  Role         controlplane
  Hostname     as Talos chooses
  Network      DHCP on every link
  Node labels  a=b, rack=1
  Fingerprint  shown=

Will be wiped
  /dev/nvme0n1  512 GB  NVMe A  S1  has gpt  → system

Will be left alone
  /dev/sda  4 TB  HDD B  naa.02  has xfs  → unused
`
	if diff := cmp.Diff(want, Summary(shown(), decision, Plain)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanHasALineForEachMachine(t *testing.T) {
	t.Parallel()
	known := shown()
	known.Spec.Identity.SerialNumber = "Q6RL12"
	adopted := shown()
	adopted.Name, adopted.Spec.Origin = "m-2", v1alpha1.MachineAdopted
	got := Plan([]PlanRow{
		{Machine: known, Warnings: []string{"spec.disks[0]: /dev/nvme0n1 holds data (gpt), which will be lost"}, Decision: proposal.Decision{
			Role: v1alpha1.RoleWorker, Hostname: "worker-1", Disks: []v1alpha1.MachineDisk{
				{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}, {Match: v1alpha1.DiskMatch{WWID: "naa.02"}, Role: v1alpha1.DiskUserVolume, Name: "data"},
			},
		}},
		{Machine: adopted, Decision: proposal.Decision{Role: v1alpha1.RoleControlPlane}},
	}, Plain)
	want := `To approve
  SERIAL  ROLE          HOSTNAME  WIPED                                                                                           NETWORK             MACHINE
  Q6RL12  worker        worker-1  /dev/nvme0n1 S1 512 GB, has gpt → system; /dev/sda naa.02 4 TB, has xfs → userVolume data  DHCP on every link  m-1
  <none>  controlplane  <none>    nothing, it runs already                                                                   DHCP on every link  m-2

Warnings
  worker-1: spec.disks[0]: /dev/nvme0n1 holds data (gpt), which will be lost
`
	if diff := cmp.Diff(strings.Join(strings.Fields(want), " "), strings.Join(strings.Fields(got), " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSummaryOfAnAdoptedMachineWipesNothing(t *testing.T) {
	t.Parallel()
	machine := shown()
	machine.Spec.Origin = v1alpha1.MachineAdopted
	got := Summary(machine, proposal.Decision{Disks: []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}}, Plain)
	if strings.Contains(got, "wiped") || !strings.Contains(got, "Nothing is written to the machine") {
		t.Errorf("got:\n%s", got)
	}
}

func TestMachineInstalledOnAnotherDiskStandsOut(t *testing.T) {
	t.Parallel()
	machine := shown()
	machine.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}
	machine.Status.SystemDisk = &v1alpha1.SystemDisk{Device: "/dev/sda", WWID: "naa.02"}
	if got := Machine(machine, nil, now, Plain); !strings.Contains(got, "but Talos is installed here") {
		t.Errorf("got:\n%s", got)
	}
	if got := Proof(machine); strings.Contains(got, "the disk that was approved") {
		t.Errorf("got: %s", got)
	}
}

func TestUnknownIsDrawnAsUnknown(t *testing.T) {
	t.Parallel()
	got := Machine(&v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m-1"}}, nil, now, Plain)
	for _, want := range []string{"m-1  <unknown>", "not looked at yet", "Stage       <unknown>", "Serial number  <none>", "First seen  <unknown>"} {
		if !strings.Contains(got, want) {
			t.Errorf("doesn't show %q:\n%s", want, got)
		}
	}
}

func TestStatusPutsPeopleFirst(t *testing.T) {
	t.Parallel()
	cluster := v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod"},
		Spec:       v1alpha1.TalosClusterSpec{ControlPlane: v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10", Port: 6443}}},
	}
	look := overview.Overview{
		NeedsYou:   []overview.Item{{Subject: "m-1", What: "waits for approval", Since: now.Add(-time.Minute), Advice: overview.Advice{Command: "ichor machine approve m-1"}}},
		InProgress: []overview.Item{{Subject: "cp-2", What: "Installing: installs", Since: now.Add(-4 * time.Minute)}},
	}
	want := `prod  https://10.0.0.10:6443
  Control planes  0 of 3 ready, 0 approved, at most 0
  Workers         0 of 0 ready
  Others          0 pending, 0 rejected
  etcd            <unknown>
  Discovery       not scanned yet

Needs you
  • m-1  60s  waits for approval
    → ichor machine approve m-1

In progress, longest first
  • cp-2  4m  Installing: installs
`
	if diff := cmp.Diff(want, Status([]v1alpha1.TalosCluster{cluster}, look, 2, now, Plain)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Status([]v1alpha1.TalosCluster{cluster}, overview.Overview{}, 2, now, Plain); !strings.Contains(got, "Nothing waits for you.  2 machines known.") {
		t.Errorf("got:\n%s", got)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, got, want string }{
		{"a disk in the units it is sold in", DiskSize(resource.MustParse("512110190592")), "512.1 GB"},
		{"memory in binary units", MemorySize(resource.MustParse("32Gi")), "32 GiB"},
		{"no memory known", MemorySize(resource.Quantity{}), ""},
		{"three voters", Quorum(3), "3 voters, tolerates the loss of 1"},
		{"four voters tolerate no more", Quorum(4), "4 voters, tolerates the loss of 1"},
		{"one voter", Quorum(1), "1 voter, tolerates the loss of 0"},
		{"a time that isn't known", Age(now, time.Time{}), "<unknown>"},
		{"a clock behind the server's", Age(now, now.Add(time.Minute)), "0s"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, test.got, test.want)
		}
	}
}

func TestColumnsLineUpWithColours(t *testing.T) {
	t.Parallel()
	lines := Columns([][]string{{Coloured.Good("ab"), "x"}, {"abcd", "y"}})
	if want := "  x"; !strings.HasSuffix(lines[0], "  "+want) {
		t.Errorf("got %q, want the second column to line up", lines[0])
	}
}
