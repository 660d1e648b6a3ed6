// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack/loopback"
	"maesh.dev/ichor/test/localstack/state"
)

func TestTheSystemDiskIsAFixedEmptyOneThatIsLargeEnough(t *testing.T) {
	t.Parallel()
	const large = fleet.Size(100 << 30)
	tests := []struct {
		name  string
		disks []fleet.Disk
		want  v1alpha1.DiskMatch
		fails bool
	}{
		{"the first that will do", []fleet.Disk{
			{Serial: "usb", Size: large, Transport: "usb"},
			{Serial: "small", Size: 4 << 30},
			{Serial: "cd", Size: large, CDROM: true},
			{Serial: "locked", Size: large, ReadOnly: true},
			{Serial: "data", Size: large, Signature: "ext4"},
			{Serial: "good", Size: large},
			{Serial: "also good", Size: large},
		}, v1alpha1.DiskMatch{Serial: "good"}, false},
		{"by WWID without a serial number", []fleet.Disk{{WWID: "eui.01", Size: large}}, v1alpha1.DiskMatch{WWID: "eui.01"}, false},
		{"none", []fleet.Disk{{Serial: "usb", Size: large, Transport: "usb"}, {Size: large}}, v1alpha1.DiskMatch{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := systemDisk(&fleet.Machine{Name: "m", Disks: test.disks})
			if diff := cmp.Diff(test.want, got); diff != "" || (err != nil) != test.fails {
				t.Errorf("error %v, disk (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestAFleetFileIsMovedToTheStacksRangeAndKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	text := `machines:
- {name: away, address: 127.99.0.5, uuid: 4c4c4544-0051-3610-8052-b4c04f4c3130, state: "Off"}
- {name: one, address: 127.0.16.77/20, uuid: 4c4c4544-0051-3610-8052-b4c04f4c3132}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses, err := loopback.ClaimPrefix(netip.MustParsePrefix("127.252.0.0/20"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = addresses.Close() })
	dir, err := state.Open(filepath.Join(t.TempDir(), "stack"))
	if err != nil {
		t.Fatal(err)
	}
	// The second time the machines of the folder are there.
	for i, options := range []Options{{FleetFile: file}, {}, {FleetFile: file}} {
		machines, err := loadFleet(options, dir, addresses, i > 0)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{machines.Machines[0].Address.String(), machines.Machines[1].Address.String()}
		if diff := cmp.Diff([]string{"127.99.0.5/24", "127.252.0.77/20"}, got); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		first, err := firstMachine(machines, "")
		if err != nil || first.Name != "one" {
			t.Errorf("the first control plane is %v (%v), want the first machine in maintenance", first, err)
		}
	}
}

func TestTheLastMachineOfAFleetBootedFromNewerMedia(t *testing.T) {
	t.Parallel()
	for machines, want := range map[int]string{1: TalosVersion, 2: newerMedia, 6: newerMedia} {
		made, err := madeFleet(machines, netip.MustParseAddr("127.0.16.11"))
		if err != nil {
			t.Fatal(err)
		}
		if first, last := made.Machines[0].TalosVersion, made.Machines[machines-1].TalosVersion; first != TalosVersion || last != want {
			t.Errorf("%d machines: the first booted %s, the last %s; want %s and %s", machines, first, last, TalosVersion, want)
		}
	}
}

func TestAFolderWithOtherMachinesIsNotTakenOver(t *testing.T) {
	t.Parallel()
	addresses, err := loopback.ClaimPrefix(netip.MustParsePrefix("127.253.0.0/20"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = addresses.Close() })
	dir, err := state.Open(filepath.Join(t.TempDir(), "stack"))
	if err != nil {
		t.Fatal(err)
	}
	if machines, err := loadFleet(Options{Machines: 3}, dir, addresses, false); err != nil || len(machines.Machines) != 3 {
		t.Fatalf("%v, %v", machines, err)
	}
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte("machines: [{name: one, address: 127.0.16.77}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, options := range []Options{{Machines: 4}, {FleetFile: file}} {
		if _, err := loadFleet(options, dir, addresses, true); err == nil || !strings.Contains(err.Error(), "other machines") {
			t.Errorf("%+v: %v, want a refusal", options, err)
		}
	}
}

func TestOptionsTellAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	o := Options{Machines: -1, APIServers: 9, Controllers: -1, BinDir: t.TempDir()}
	err := o.complete()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"state folder", "machines: -1", "apiservers: 9", "controllers: -1", "make build"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
