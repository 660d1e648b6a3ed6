// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// actor is one of those who act at the same time; it is deterministic, shares nothing but the storage, and asks the registry as the API server's handlers do.
type actor struct {
	name string
	do   func(*world)
}

// policy is what mutating admission makes of an approval.
type policy string

const (
	nothing          policy = ""
	makeControlPlane policy = "make it a control plane"
	moveToLab        policy = "move it to cluster lab"
)

// approves asks for a machine as a control plane of prod, by a patch, which adopts whatever version it meets.
func approves(machine, hostname string) actor {
	return decides("approves "+machine+" "+hostname, machine, ichor.RoleControlPlane, hostname)
}

// approvesWorker asks for a machine as a worker of prod.
func approvesWorker(machine string) actor {
	return decides("approves "+machine+" as worker", machine, ichor.RoleWorker, "")
}

func decides(name, machine string, role ichor.MachineRole, hostname string) actor {
	return actor{strings.TrimSpace(name), func(w *world) {
		patch := func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			m := old.DeepCopyObject().(*ichor.TalosMachine)
			m.Spec.ApprovalState, m.Spec.Role, m.Spec.Hostname = ichor.ApprovalApproved, role, hostname
			m.Spec.ClusterRef.Name = "prod"
			m.Spec.Approval = &ichor.MachineApproval{MaintenanceFingerprint: shown}
			m.Spec.Disks = []ichor.MachineDisk{{Match: ichor.DiskMatch{Serial: "S1"}, Role: ichor.DiskSystem}}
			return m, nil
		}
		ctx, cancel := context.WithCancel(userContext())
		defer cancel()
		if w.once {
			cancel()
		}
		err := w.update(ctx, "talosmachines/approval", machine, patch, w.admission)
		if err != nil && w.without == "no release" && w.current.tokens > 0 {
			_ = w.gate.GiveBack(userContext(), "prod", fmt.Sprintf("%s#%d", w.current.name, w.current.tokens))
		}
	}}
}

// admission is the host cluster's, without the note of what was asked for that the server takes before it: the gate has
// to do alone.
func (w *world) admission(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
	m := obj.(*ichor.TalosMachine)
	w.told(string(w.policy))
	switch w.policy {
	case makeControlPlane:
		m.Spec.Role = ichor.RoleControlPlane
	case moveToLab:
		m.Spec.ClusterRef.Name = "lab"
	}
	return m, nil
}

// setsPolicy changes what admission does.
func setsPolicy(to policy) actor {
	return actor{"sets a policy: " + string(to), func(w *world) {
		if _, err := w.turn(step{text: "sets the policy", key: "policy"}); err == nil {
			w.policy = to
		}
	}}
}

// timePasses is the time in which an approval may be on its way.
func timePasses() actor {
	return actor{"time passes", func(w *world) {
		if _, err := w.turn(step{text: "waits", key: "clock"}); err == nil {
			w.clock++
		}
	}}
}

// reaps frees slots, as each API server does every now and then.
func reaps() actor {
	return actor{"reaps", func(w *world) { _, _ = w.gate.Reap(userContext(), "prod") }}
}

// vanishes takes a machine out of the storage, and frees its slot as the server does then.
func vanishes(name string) actor {
	return actor{name + " vanishes", func(w *world) {
		if m := w.take(name); m != nil {
			_ = w.gate.Release(userContext(), "prod", m.UID)
		}
	}}
}

// isReplaced takes a machine out of the storage and makes another of its name; its slot is left to the reaper.
func isReplaced(name string, uid types.UID) actor {
	return actor{name + " is made again", func(w *world) {
		if w.take(name) == nil {
			return
		}
		if _, err := w.turn(step{text: "creates talosmachines/" + name, key: machineKey(name), write: true}); err == nil {
			w.addMachine(name, uid, "prod")
		}
	}}
}

func (w *world) take(name string) *ichor.TalosMachine {
	m, err := w.turn(step{text: "removes talosmachines/" + name, key: machineKey(name), write: true})
	machine, there := w.objects[machineKey(name)].(*ichor.TalosMachine)
	if err != nil || !there {
		return nil
	}
	w.told(describe(machine))
	w.remove(machineKey(name))
	if m.outcome == lost {
		return nil
	}
	return machine
}

// isRemoved is a removal as a person asks for it: the machine is deleted, the controller takes the finalizer away, the
// server frees the slot, and, if a UID is given, the machine is found again.
func isRemoved(name string, again types.UID) actor {
	return actor{name + " is removed", func(w *world) {
		_, _, err := w.rest["talosmachines"].(rest.GracefulDeleter).Delete(userContext(), name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
		if err != nil || w.update(userContext(), "talosmachines/finalize", name, withoutFinalizers) != nil || again == "" {
			return
		}
		if _, err := w.turn(step{text: "creates talosmachines/" + name, key: machineKey(name), write: true}); err == nil && w.objects[machineKey(name)] == nil {
			w.addMachine(name, again, "prod")
		}
	}}
}

// isMadeAgain is a cluster that is deleted, as far as its rules let it be, and made again under its name.
func isMadeAgain(name string, uid types.UID, count int32) actor {
	return actor{name + " is made again", func(w *world) {
		_, _, err := w.rest["talosclusters"].(rest.GracefulDeleter).Delete(userContext(), name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
		if err != nil || w.update(userContext(), "talosclusters/finalize", name, withoutFinalizers) != nil {
			return
		}
		if _, err := w.turn(step{text: "creates talosclusters/" + name, key: clusterKey(name), write: true}); err == nil && w.objects[clusterKey(name)] == nil {
			w.addCluster(name, uid, count)
		}
	}}
}

func withoutFinalizers(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
	obj := old.DeepCopyObject()
	obj.(metav1.Object).SetFinalizers(nil)
	return obj, nil
}

// counts sets the number of control planes that prod wants.
func counts(to int32) actor {
	return actor{"counts " + string('0'+rune(to)), func(w *world) {
		set := func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			c := old.DeepCopyObject().(*ichor.TalosCluster)
			c.Spec.ControlPlane.Count = to
			return c, nil
		}
		if w.without != "count" {
			_ = w.update(userContext(), "talosclusters", "prod", set)
			return
		}
		// Without the rule, the change is judged as a dry run and written in a transaction of its own.
		_, _, err := w.rest["talosclusters"].(rest.Updater).Update(userContext(), "prod", rest.DefaultUpdatedObjectInfo(nil, set),
			rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return
		}
		if _, err := w.turn(step{text: "updates talosclusters/prod", key: clusterKey("prod"), write: true}); err == nil && w.cluster("prod") != nil {
			c, _ := set(userContext(), nil, w.cluster("prod"))
			w.put(clusterKey("prod"), c)
		}
	}}
}

// update asks a resource or subresource for a change as the handler of a patch does.
func (w *world) update(ctx context.Context, resource, name string, transform ...rest.TransformFunc) error {
	_, _, err := w.rest[resource].(rest.Updater).Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, transform...),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}
