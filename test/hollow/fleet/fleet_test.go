// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"maesh.dev/ichor/test/hollow/fleet"
)

const one = `
machines:
- name: rack1-a
  address: 127.0.16.11
  uuid: 4c4c4544-0051-3610-8052-b4c04f4c3132
  serialNumber: Q6RL12
  talosVersion: v1.13.9
  memory: 32GiB
  cpus: 8
  links:
  - {name: enp1s0, permanentMAC: "02:00:5e:00:53:01", speed: 10000, up: true}
  disks:
  - {device: /dev/nvme0n1, size: 512GB, model: "NVMe A", serial: S1, wwid: eui.01, transport: nvme}
  - {device: /dev/sda, size: 4TB, model: "HDD B", serial: S2, wwid: naa.02, transport: sata, rotational: true}
  state: Maintenance
  timings: {install: 2s}
`

func TestAFleetFileIsReadAndCompleted(t *testing.T) {
	t.Parallel()
	f, err := fleet.Parse([]byte(one))
	if err != nil {
		t.Fatal(err)
	}
	m := f.Machines[0]
	if m.Address.String() != "127.0.16.11/24" || m.Memory != 32<<30 || m.Disks[0].Size != 512e9 || m.Disks[1].Size != 4e12 {
		t.Errorf("read %+v", m)
	}
	if m.Links[0].MAC != m.Links[0].PermanentMAC || m.CNI != fleet.CNIReady || time.Duration(m.Timings.Install) != 2*time.Second || m.Timings.Reboot != fleet.DefaultTimings.Reboot {
		t.Errorf("completed %+v", m)
	}
}

func TestEveryFaultOfAFleetFileIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to, want string }{
		{"an unknown key", "cpus: 8", "cpu: 8", `unknown field "cpu"`},
		{"an address that is not loopback", "127.0.16.11", "10.0.0.1", "machines[0].address"},
		{"a name that is no label", "rack1-a", "Rack_1", "machines[0].name"},
		{"a version that nobody can play", "v1.13.9", "v1.2.0", "no profile for 1.2"},
		{"a size without sense", "512GB", "many", `size "many"`},
		{"a broken MAC", "02:00:5e:00:53:01", "02:zz", "links[0].permanentMAC"},
		{"a doubled disk", "/dev/sda", "/dev/nvme0n1", "disks[1].device"},
		{"a state that isn't one", "state: Maintenance", "state: Asleep", "machines[0].state"},
		{"a duration without a unit", "install: 2s", "install: 2", "duration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := fleet.Parse([]byte(strings.Replace(one, c.from, c.to, 1)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	_, err := fleet.Parse([]byte(strings.NewReplacer("cpus: 8", "cpus: 2000", "rack1-a", "A").Replace(one)))
	if err == nil || !strings.Contains(err.Error(), "machines[0].name") || !strings.Contains(err.Error(), "machines[0].cpus") {
		t.Errorf("of two faults this is told: %v", err)
	}
}

func TestNamesAndAddressesAreUniqueButHardwareMayBeDoubled(t *testing.T) {
	t.Parallel()
	entry := strings.TrimPrefix(one, "\nmachines:\n")
	_, err := fleet.Parse([]byte("machines:\n" + entry + entry))
	if err == nil || !strings.Contains(err.Error(), "machines[1].name") || !strings.Contains(err.Error(), "machines[1].address") {
		t.Errorf("got %v", err)
	}
	other := strings.NewReplacer("rack1-a", "rack1-b", "16.11", "16.12").Replace(entry)
	if _, err := fleet.Parse([]byte("machines:\n" + entry + other)); err != nil {
		t.Errorf("the same UUID, serial and MAC twice: %v", err)
	}
}

func TestAGeneratedFleetIsTheSameEachTimeAndSurvivesTheFile(t *testing.T) {
	t.Parallel()
	options := fleet.GenerateOptions{Machines: 200, First: netip.MustParseAddr("127.0.16.1"), Seed: 7}
	a, err := fleet.Generate(options)
	if err != nil {
		t.Fatal(err)
	}
	b, err := fleet.Generate(options)
	if err != nil {
		t.Fatal(err)
	}
	prefixes := cmpopts.EquateComparable(netip.Prefix{})
	if diff := cmp.Diff(a, b, prefixes); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := fleet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, read, prefixes); diff != "" {
		t.Errorf("the file differs:\n%s", diff)
	}
	seen := map[string]bool{}
	usb, small := 0, 0
	for _, m := range a.Machines {
		usable := 0
		for _, id := range []string{m.UUID, m.SerialNumber, m.Links[0].PermanentMAC} {
			if seen[id] {
				t.Errorf("%s is used twice", id)
			}
			seen[id] = true
		}
		for _, d := range m.Disks {
			switch {
			case d.Transport == "usb":
				usb++
			case d.Size < 10<<30:
				small++
			default:
				usable++
			}
		}
		if usable < 1 || usable > 3 {
			t.Errorf("%s has %d usable disks", m.Name, usable)
		}
	}
	if usb == 0 || small == 0 {
		t.Errorf("%d USB sticks and %d small disks in 200 machines", usb, small)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fleet.Size{"512GB": 512e9, "32GiB": 32 << 30, "1.5TiB": 3 << 39, "10": 10, "4 TB": 4e12} {
		got, err := fleet.ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, err, want)
		}
		if again, err := fleet.ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%s: written as %s, read as %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "GB", "-1GB", "1e9", "0.3B", "99999999TB", "1/2GB"} {
		if got, err := fleet.ParseSize(text); err == nil {
			t.Errorf("%q: read as %d", text, got)
		}
	}
}
