// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// Up to 1.12 a machine in maintenance mode has another server, which doesn't tell its version when it is asked for it
// (talos-contract.md §1.6); a later one has types and fields that the client doesn't know. All are found alike.
func TestMachinesOfEveryVersionAreFoundAlike(t *testing.T) {
	w := newWorld(t, 24)
	w.search()
	machines, entries := map[string]*node.Node{}, map[string]fleet.Machine{}
	versions := map[string]string{}
	for _, version := range []string{"v1.12.11", "v1.13.9", "v1.14.0-rc.1", "v1.12.0", "v1.14.0"} {
		m := w.rack.Machine()
		m.TalosVersion, m.Schematic = version, strings.Repeat("0a", 32)
		machines[m.UUID], entries[m.UUID] = w.rack.Start(m), m
		versions[strings.ToLower(m.UUID)] = version + " " + m.Schematic
	}
	for _, n := range machines {
		hollowtest.Wait(t, n, node.InMaintenance)
	}
	w.scan("first")
	objects := w.machines()
	got := map[string]string{}
	for uuid, n := range machines {
		w.compare(objects, entries[uuid], n)
	}
	for name, m := range objects {
		got[name] = m.Status.TalosVersion + " " + m.Status.SchematicID
	}
	if diff := cmp.Diff(versions, got); diff != "" {
		t.Errorf("versions and schematics (-want +got):\n%s", diff)
	}
	if counts := w.cluster().Status.Discovery; counts.Maintenance != int32(len(machines)) || counts.AlreadyConfigured != 0 {
		t.Errorf("counts %+v", counts)
	}
	for _, host := range w.cluster().Status.Discovery.Hosts {
		if host.Class == v1alpha1.HostMaintenance {
			t.Errorf("a machine is listed as an odd host: %+v", host)
		}
	}

	w.unchanged()
}
