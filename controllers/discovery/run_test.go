// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// running runs the controller until the test ends, and then demands that Run returns.
func (w *world) running() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.c.Run(ctx, 2) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run: %v", err)
		}
	})
}

func TestRunFollowsTheSpec(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.running()
	w.eventually("the first machine is found", func() bool { return w.machines()[uuidA] != nil && w.cluster().Status.Discovery.ObservedGeneration == 1 })

	w.put("10.0.0.8", board(uuidB, "S2", macB))
	w.editCluster(func(cluster *v1alpha1.TalosCluster) { cluster.Spec.Discovery.ScanRequest = "please" })
	w.eventually("the scan that was asked for is done", func() bool {
		return w.machines()[uuidB] != nil && w.cluster().Status.Discovery.ScanRequest == "please"
	})

	w.put("10.1.0.1", board("c0ffee00-0000-4000-8000-000000000001", "S3", macC))
	w.editCluster(func(cluster *v1alpha1.TalosCluster) { cluster.Spec.Discovery.Addresses = []string{"10.1.0.1"} })
	w.eventually("the new address is looked at", func() bool { return w.machines()["c0ffee00-0000-4000-8000-000000000001"] != nil })
}

func TestRunDropsAScanWhoseSpecChanged(t *testing.T) {
	w := newWorld(t, nil)
	var d door
	d.close("10.0.0.100")
	w.gate = d.gate
	w.running()
	w.eventually("the scan hangs", func() bool { return w.probes("10.0.0.100") > 0 })
	w.put("10.0.2.1", board(uuidA, "S1", macA))
	w.editCluster(func(cluster *v1alpha1.TalosCluster) { cluster.Spec.Discovery.Subnets[0].CIDR = "10.0.2.0/24" })
	w.eventually("the new subnet is scanned", func() bool { return w.machines()[uuidA] != nil && w.cluster().Status.Discovery.ObservedGeneration == 2 })
}

func TestRunFindsADeletedMachineAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.running()
	w.eventually("it is found", func() bool { return w.machines()[uuidA] != nil && resolved(w.machines()[uuidA]) != "none" })
	first := w.machine(uuidA).UID
	w.remove(uuidA)
	w.eventually("it is found again", func() bool { return w.machines()[uuidA] != nil && w.machines()[uuidA].UID != first })
}

func TestRunTakesAPersonsWordAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(junk, "", macA))
	w.running()
	w.eventually("it is found", func() bool { return len(w.machines()) == 1 && w.cluster().Status.Discovery.ObservedGeneration == 1 })
	name := w.machineAt("10.0.0.7").Name
	w.edit(name, func(m *v1alpha1.TalosMachine) {
		m.Spec.IdentityResolution = &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentityDistinct, By: "alice"}
	})
	w.eventually("it is resolved", func() bool { return resolved(w.machine(name)) == "True ResolvedByPerson" })
}

func TestNewWantsEverything(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); err == nil {
		t.Error("a controller was made of nothing")
	}
}
