// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func written(t *testing.T, facts Facts, role v1alpha1.MachineRole, chosen ...int) string {
	t.Helper()
	machines := make([]*v1alpha1.TalosMachine, 0, len(chosen))
	for _, n := range chosen {
		machines = append(machines, &facts.Machines[n])
	}
	var text strings.Builder
	if err := Write(&text, Drafts(machines, facts, role), facts); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestWriteProposesInOrder(t *testing.T) {
	t.Parallel()
	text := written(t, rack(), "", 0, 1, 2, 3, 6)
	for _, want := range []string{
		"defaults:\n  clusterRef: {name: prod}\n",
		"- serialNumber: SER-A\n  role: controlplane\n  hostname: cp-1\n  installDisk: {serial: NVME1}\n",
		"- serialNumber: SER-C\n  role: controlplane\n  hostname: cp-3\n#   installDisk is yours to choose: 2 disks are fit for it",
		"- name: weak-d\n  role: worker\n  hostname: worker-10\n",
		"#   disk /dev/sda  4 TB    sata  has xfs  {serial: HDD3}\n",
		"#   interface enp1s0  02:00:5e:00:53:01  up  10.0.0.61/24\n",
		"# left out: weak-r (SER-R): it was rejected\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan has no\n%s\nit is\n%s", want, text)
		}
	}
}

// TestWrittenPlansAreRead closes the circle: what is written can be approved as it is, where nothing is left open.
func TestWrittenPlansAreRead(t *testing.T) {
	t.Parallel()
	facts := rack()
	targets, faults := Plan(read(t, written(t, facts, v1alpha1.RoleWorker, 0, 1, 3)), facts)
	if len(faults) > 0 {
		t.Fatalf("faults: %v", told(faults))
	}
	var got []string
	for _, target := range targets {
		got = append(got, target.Machine.Name+" "+string(target.Decision.Role)+" "+target.Decision.Hostname)
	}
	want := []string{uuidA + " worker worker-10", uuidB + " worker worker-11", "weak-d worker worker-12"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

func TestWriteKeepsFirmwareInItsPlace(t *testing.T) {
	t.Parallel()
	facts := rack()
	machine := &facts.Machines[0]
	evil := "x\n- name: weak-d\n  role: controlplane\u2028\u0085# {"
	machine.Spec.Identity.SerialNumber = `"no": ` + evil
	machine.Status.Inventory.Manufacturer = evil
	machine.Status.Inventory.Disks[0].Model = evil
	machine.Status.Inventory.Disks[0].Serial = "yes"
	items := read(t, written(t, facts, "", 0))
	if len(items) != 1 {
		t.Fatalf("%d machines, want 1", len(items))
	}
	targets, faults := Plan(items, facts)
	if len(faults) > 0 || targets[0].Machine.Name != uuidA || targets[0].Decision.Disks[0].Match.Serial != "yes" {
		t.Errorf("got %+v, faults %v", targets, told(faults))
	}
}

func TestNearestWords(t *testing.T) {
	t.Parallel()
	known := []string{"clusterRef", "hostname", "serialNumber", "name"}
	for word, want := range map[string]string{"hostnam": "hostname", "HostName": "hostname", "serial": "serialNumber", "cluster": "clusterRef", "colour": "", "nme": "name", "": ""} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}
