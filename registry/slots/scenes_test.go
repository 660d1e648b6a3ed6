// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// scenes are the small ones, each made to show something; all orders of their steps are gone through.
var scenes = []scene{
	{
		name: "two machines for one free slot", setup: waiting(0, "a", "b"), faults: 2,
		actors: []actor{approves("a", ""), approves("b", "")},
	},
	{
		name: "one machine approved twice, and a reaper", setup: waiting(0, "a"), faults: 1,
		actors: []actor{approves("a", ""), approves("a", ""), timePasses(), reaps()},
	},
	{
		name: "two machines, a free slot and a reaper", setup: waiting(0, "a", "b"), faults: 0,
		actors: []actor{approves("a", ""), approves("b", ""), timePasses(), reaps()},
	},
	{
		name: "an approval and two reapers", setup: waiting(0, "a"), faults: 2,
		actors: []actor{approves("a", ""), timePasses(), reaps(), reaps()},
	},
	{
		name: "one machine under two names", setup: waiting(2, "a", "b"), faults: 1, once: true,
		actors: []actor{approves("a", "cp-1"), approves("a", "cp-2"), approves("b", "cp-1")},
	},
	{
		name: "two machines under one name", setup: waiting(2, "a", "b"), faults: 2,
		actors: []actor{approves("a", "cp-1"), approves("b", "cp-1")},
	},
	{
		name: "a machine vanishes while it is approved, and another waits", setup: waiting(0, "a", "b"), faults: 1,
		actors: []actor{approves("a", ""), vanishes("a"), approves("b", "")},
	},
	{
		name: "a machine is made again while it is approved", setup: waiting(1, "a"), faults: 0,
		actors: []actor{approves("a", ""), isReplaced("a", "a2"), timePasses(), reaps()},
	},
	{
		name: "a machine is removed and found again", setup: waiting(0, "a"), faults: 0,
		actors: []actor{approves("a", ""), isRemoved("a", "a2"), approves("a", "")},
	},
	{
		name: "a slot of a machine that is gone", setup: stale(0, "a", "b"), faults: 1,
		actors: []actor{approves("a", ""), approves("b", "")},
	},
	{
		name: "the count falls and rises", setup: holding(2, []string{"x", "y"}, "a"), faults: 1,
		actors: []actor{approves("a", ""), counts(1), counts(3)},
	},
	{
		name: "the count falls while two are approved", setup: holding(2, []string{"x"}, "a", "b"), faults: 1,
		actors: []actor{approves("a", ""), approves("b", ""), counts(1)},
	},
	{
		name: "the cluster is deleted and made again", setup: apart("a"), faults: 1,
		actors: []actor{approves("a", ""), isMadeAgain("prod", "c2", 1), timePasses(), reaps()},
	},
	{
		name: "admission makes control planes of workers", setup: waiting(0, "a", "b"), faults: 1,
		actors: []actor{approvesWorker("a"), setsPolicy(makeControlPlane), approves("b", "")},
	},
	{
		name: "admission moves machines to another cluster", faults: 1,
		setup: func(w *world) {
			waiting(0, "a")(w)
			w.addCluster("lab", "l1", 1)
		},
		actors: []actor{approves("a", ""), setsPolicy(moveToLab), timePasses(), reaps()},
	},
}

// crowd is a large one, of which random orders are tried.
var crowd = scene{
	name: "a crowd", setup: holding(2, []string{"x"}, "a", "b", "c", "d"), faults: 4,
	actors: []actor{
		approves("a", "cp-1"), approves("a", "cp-2"), approves("b", "cp-2"), approves("b", "cp-2"), approves("c", "cp-3"), approves("d", ""),
		approvesWorker("d"), isRemoved("x", "x2"), approves("x", "cp-1"), isReplaced("c", "c2"), vanishes("b"), counts(1), counts(4), counts(2),
		timePasses(), timePasses(), reaps(), reaps(), reaps(), setsPolicy(makeControlPlane), setsPolicy(nothing),
	},
}

// waiting is a cluster with pending machines.
func waiting(count int32, names ...string) func(*world) {
	return func(w *world) {
		w.addCluster("prod", "c1", count)
		for _, name := range names {
			w.addMachine(name, types.UID(name+"1"), "prod")
		}
	}
}

// apart is a cluster with pending machines that belong to none yet, so that the cluster can be deleted.
func apart(names ...string) func(*world) {
	return func(w *world) {
		w.addCluster("prod", "c1", 1)
		for _, name := range names {
			w.addMachine(name, types.UID(name+"1"), "")
		}
	}
}

// stale is a cluster with a slot of a machine that is gone.
func stale(count int32, names ...string) func(*world) {
	return func(w *world) {
		waiting(count, names...)(w)
		w.hold(ichor.ControlPlaneSlot{MachineUID: "z1", Name: "z", Token: "old"})
	}
}

// holding is a cluster in which some machines are control planes already.
func holding(count int32, control []string, names ...string) func(*world) {
	return func(w *world) {
		waiting(count, append(append([]string{}, control...), names...)...)(w)
		for _, name := range control {
			m := w.objects[machineKey(name)].DeepCopyObject().(*ichor.TalosMachine)
			w.hold(ichor.ControlPlaneSlot{MachineUID: m.UID, Name: name, Token: "first"})
			m.Spec.ApprovalState, m.Spec.Role = ichor.ApprovalApproved, ichor.RoleControlPlane
			m.Spec.Approval = &ichor.MachineApproval{MaintenanceFingerprint: shown, ClusterUID: w.cluster("prod").UID}
			w.put(machineKey(name), m)
		}
	}
}
