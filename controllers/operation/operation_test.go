// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

var once = map[string]int{"cp-1": 1, "cp-2": 1, "cp-3": 1, "worker-1": 1, "worker-2": 1}

func TestARebootOfAClusterGoesOneMachineAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 2)
	r.drainer.owner["worker-2"] = somebody
	r.create("all", rebootAll)
	got := r.run("all", inPhase(v1alpha1.OperationSucceeded))
	if want := []string{"cp-1", "cp-2", "cp-3", "worker-1", "worker-2"}; !slices.Equal(order(got), want) {
		t.Errorf("the plan is %v, want %v", order(got), want)
	}
	if !maps.Equal(r.reboots(), once) || r.worst != 1 {
		t.Errorf("rebooted %v with %d control planes down at once, want each once and one at a time", r.reboots(), r.worst)
	}
	if got.Status.Done != 5 || got.Status.Total != 5 || got.Status.FinishedAt == nil {
		t.Errorf("done %d of %d", got.Status.Done, got.Status.Total)
	}
	for _, m := range got.Status.Machines {
		if !m.Done || m.StartedAt == nil || m.FinishedAt == nil || m.Step != stepUncordon || m.State != v1alpha1.StepVerified {
			t.Errorf("%s ended as %+v", m.Name, m)
		}
	}
	if len(r.drainer.drained) != 5 {
		t.Errorf("drained %v", r.drainer.drained)
	}
	if r.drainer.owner["worker-2"] != somebody {
		t.Error("a Node that a person had cordoned was uncordoned")
	}
	if leader := r.node["cp-1"].Snapshot().Etcd.Leader; leader == 1 {
		t.Error("the leader of etcd went down without handing over")
	}
	r.asItWas()
}

// A controller that is killed before or after any of its writes goes on where it was: the end is the same, and nothing is
// done twice.
func TestKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	deaths := 0
	for at := 1; ; at++ {
		r := newRig(t, 3, 1)
		for _, m := range []string{"cp-2", "worker-1"} {
			r.change(m, func(m *v1alpha1.TalosMachine) { m.Status.Config = &v1alpha1.MachineConfigStatus{PendingReboot: true} })
		}
		r.create("roll", func(spec *v1alpha1.TalosOperationSpec) { spec.ConfigRollout = &v1alpha1.ConfigRollout{} })
		r.start(at)
		ctx, died := context.Background(), false
		for looks := 0; !isOver(r.operation("roll")); looks++ {
			if err := r.look(ctx); err != nil {
				if !strings.Contains(err.Error(), errDead.Error()) {
					t.Fatalf("killed at %d: %v", at, err)
				}
				died = true
				r.start(0)
			}
			r.comeBack(ctx)
			if looks > 200 {
				t.Fatalf("killed at %d: never ends: %s", at, r.operation("roll").Status.Message)
			}
		}
		if err := r.look(ctx); err != nil {
			died = true
			r.start(0)
			if err := r.look(ctx); err != nil {
				t.Fatal(err)
			}
		}
		got := r.operation("roll")
		if got.Status.Phase != v1alpha1.OperationSucceeded || !maps.Equal(r.reboots(), map[string]int{"cp-2": 1, "worker-1": 1}) || r.worst > 1 {
			t.Errorf("killed at %d: %s (%s), rebooted %v", at, got.Status.Phase, got.Status.Message, r.reboots())
		}
		for _, m := range []string{"cp-2", "worker-1"} {
			if string(r.node[m].Snapshot().Config) != "new" {
				t.Errorf("killed at %d: %s runs another configuration than the staged one", at, m)
			}
		}
		r.asItWas()
		if !died {
			break
		}
		deaths++
	}
	if deaths < 40 {
		t.Errorf("died %d times: the moments are not all there", deaths)
	}
}

func TestWhatKeepsAMachineFromGoingDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		controlPlanes int
		change        func(*rig)
		why           string
		mend          func(*rig)
	}{
		"another control plane is not Ready": {3, func(r *rig) { r.ready("cp-2", false) }, "control plane cp-2 is not Ready", func(r *rig) { r.ready("cp-2", true) }},
		"another member is silent": {
			3, func(r *rig) { r.node["cp-2"].Do(func(s *talostest.State) { s.Mode = talostest.Off }) }, "etcd member cp-2 (2) isn't healthy",
			func(r *rig) { r.node["cp-2"].Do(func(s *talostest.State) { s.Mode = talostest.Configured }) },
		},
		"a learner": {
			3, func(r *rig) { r.members(func(m []talos.EtcdMember) { m[2].Learner = true }) }, "etcd member cp-3 is a learner",
			func(r *rig) { r.members(func(m []talos.EtcdMember) { m[2].Learner = false }) },
		},
		"an alarm": {
			3, func(r *rig) {
				r.node["cp-1"].Do(func(s *talostest.State) { s.Alarms = []talos.EtcdAlarm{{MemberID: 2, Kind: "NOSPACE"}} })
			}, "alarm NOSPACE on member 2",
			func(r *rig) { r.node["cp-1"].Do(func(s *talostest.State) { s.Alarms = nil }) },
		},
		"a member without a quorum": {
			3, func(r *rig) {
				r.node["cp-3"].Do(func(s *talostest.State) { s.Etcd.Errors = []string{"etcdserver: no leader"} })
			}, "etcd member cp-3 (3) isn't healthy",
			func(r *rig) { r.node["cp-3"].Do(func(s *talostest.State) { s.Etcd.Errors = nil }) },
		},
		"another machine answers in a member's place": {
			3, func(r *rig) { r.world.Put("10.0.0.2", r.node["worker-1"]) }, "etcd member cp-2 (2) isn't healthy",
			func(r *rig) { r.world.Put("10.0.0.2", r.node["cp-2"]) },
		},
		"another is being removed": {
			3, func(r *rig) {
				r.change("cp-3", func(m *v1alpha1.TalosMachine) {
					now := metav1.Now()
					m.DeletionTimestamp, m.Finalizers = &now, []string{v1alpha1.MachineFinalizer}
					m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReset, Status: metav1.ConditionUnknown})
				})
			}, "control plane cp-3 is being removed",
			func(r *rig) {
				r.change("cp-3", func(m *v1alpha1.TalosMachine) {
					m.DeletionTimestamp, m.Status.Conditions = nil, m.Status.Conditions[:1]
				})
			},
		},
		"another is being configured": {
			3, func(r *rig) {
				r.change("cp-3", func(m *v1alpha1.TalosMachine) {
					m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionConfigApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonApplying})
				})
			}, "control plane cp-3 is being configured",
			func(r *rig) {
				r.change("cp-3", func(m *v1alpha1.TalosMachine) { m.Status.Conditions = m.Status.Conditions[:1] })
			},
		},
		"a lock": {
			1, func(r *rig) { r.change("cp-1", func(m *v1alpha1.TalosMachine) { m.Spec.Locked = true }) }, "spec.locked is true",
			func(r *rig) { r.change("cp-1", func(m *v1alpha1.TalosMachine) { m.Spec.Locked = false }) },
		},
		"a lock of the cluster": {1, func(r *rig) { r.lockCluster(true) }, "spec.locked of cluster prod is true", func(r *rig) { r.lockCluster(false) }},
		"a person's gate":       {1, func(r *rig) { r.gates["ceph"] = gates.Result{State: gates.Waiting, Message: "gate ceph: HEALTH_WARN"} }, "gate ceph: HEALTH_WARN", func(r *rig) { r.gates["ceph"] = gates.Result{State: gates.Opened} }},
		"no snapshot": {
			1, func(r *rig) {
				r.node["cp-1"].Do(func(s *talostest.State) { s.SnapshotErr = errors.New("it broke off") })
			}, "there is no fresh snapshot of etcd",
			func(r *rig) { r.node["cp-1"].Do(func(s *talostest.State) { s.SnapshotErr = nil }) },
		},
		"pods that can't go": {
			1, func(r *rig) {
				r.drainer.blockers["cp-1"] = []drain.Blocker{{Name: "pod a/b", Message: "is held by PodDisruptionBudget a/c"}}
			}, "PodDisruptionBudget a/c",
			func(r *rig) { delete(r.drainer.blockers, "cp-1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.controlPlanes, 1)
			r.gates["ceph"] = gates.Result{State: gates.Waiting, Message: "the test isn't ready"}
			r.create("one", func(spec *v1alpha1.TalosOperationSpec) {
				rebootAll(spec)
				spec.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-1"}}
				spec.Gates = []v1alpha1.OperationGate{{Name: "ceph"}}
			})
			r.run("one", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "isn't ready") })
			r.gates["ceph"] = gates.Result{State: gates.Opened}
			c.change(r)
			got := r.run("one", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, c.why) })
			if len(r.reboots()) > 0 || isOver(got) {
				t.Fatalf("it is %s, and rebooted %v", got.Status.Phase, r.reboots())
			}
			// A person is called when it takes too long, and asks to go on when it is mended.
			r.run("one", inPhase(v1alpha1.OperationPaused))
			c.mend(r)
			r.control("one", func(control *v1alpha1.OperationControl) { control.ResumeRequests++ })
			r.run("one", inPhase(v1alpha1.OperationSucceeded))
			if r.reboots()["cp-1"] != 1 {
				t.Errorf("rebooted %v", r.reboots())
			}
			r.asItWas()
		})
	}
}

func (r *rig) lockCluster(locked bool) {
	r.t.Helper()
	clusters := r.api.IchorV1alpha1().TalosClusters()
	cluster, err := clusters.Get(context.Background(), "prod", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	cluster.Spec.Locked = locked
	if _, err := clusters.Update(context.Background(), cluster, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// ready says in a machine's object whether it is Ready.
func (r *rig) ready(name string, is bool) {
	r.change(name, func(m *v1alpha1.TalosMachine) {
		m.Status.Conditions[0].Status = metav1.ConditionTrue
		if !is {
			m.Status.Conditions[0].Status, m.Status.Conditions[0].Message = metav1.ConditionFalse, "it burns"
		}
	})
}

// members changes the members of etcd as every machine lists them.
func (r *rig) members(change func([]talos.EtcdMember)) {
	for _, machine := range r.node {
		machine.Do(func(s *talostest.State) {
			s.Members = slices.Clone(s.Members)
			change(s.Members)
		})
	}
}

func TestTwoControlPlanesKeepTheirQuorum(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, 0)
	r.create("all", rebootAll)
	got := r.run("all", inPhase(v1alpha1.OperationPaused))
	if !strings.Contains(got.Status.Message, "without it etcd has 1 healthy voters of 2, and needs 2") || len(r.reboots()) > 0 {
		t.Errorf("it says %q, and rebooted %v", got.Status.Message, r.reboots())
	}
	if risks := strings.Join(got.Status.Plan.Risks, " "); !strings.Contains(risks, "two control planes") {
		t.Errorf("the plan names the risks %q", risks)
	}
}

func TestACancelledOperationPutsBackWhatItPutAside(t *testing.T) {
	t.Parallel()
	for _, at := range []string{stepGates, stepCordon, stepDrain, stepReboot, stepVerify} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3, 1)
			r.gates["wait"] = gates.Result{State: gates.Opened}
			if at == stepGates {
				r.gates["wait"] = gates.Result{State: gates.Waiting, Message: "gate wait: not yet"}
			}
			r.slow["cp-1"] = at == stepReboot || at == stepVerify
			if at == stepDrain || at == stepCordon {
				r.drainer.blockers["cp-1"] = []drain.Blocker{{Name: "pod a/b"}}
			}
			r.create("all", func(spec *v1alpha1.TalosOperationSpec) {
				rebootAll(spec)
				spec.Gates = []v1alpha1.OperationGate{{Name: "wait"}}
			})
			stop := at
			if at == stepGates {
				stop = stepOwnGates
			}
			if at == stepCordon {
				stop = stepDrain
			}
			if at == stepVerify {
				stop = stepReboot
			}
			r.run("all", func(o *v1alpha1.TalosOperation) bool {
				return len(o.Status.Machines) > 0 && o.Status.Machines[0].Step == stop && o.Status.Machines[0].State != v1alpha1.StepVerified
			})
			r.control("all", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
			if at == stepReboot || at == stepVerify {
				for range 5 {
					if err := r.look(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				if isOver(r.operation("all")) {
					t.Error("it ended while the machine was down")
				}
				r.slow["cp-1"] = false
			}
			got := r.run("all", inPhase(v1alpha1.OperationCancelled))
			if !strings.Contains(got.Status.Message, "alice") || len(r.reboots()) > 1 || r.reboots()["cp-2"] > 0 {
				t.Errorf("it says %q, and rebooted %v", got.Status.Message, r.reboots())
			}
			r.asItWas()
		})
	}
}

func TestASuspendedOperationFinishesTheMachineItBegan(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	r.create("all", rebootAll)
	r.run("all", func(o *v1alpha1.TalosOperation) bool { return o.Status.Current == "cp-1" && len(r.reboots()) > 0 })
	suspend := func(is bool) {
		operation := r.operation("all")
		operation.Spec.Suspend = is
		if _, err := r.api.IchorV1alpha1().TalosOperations().Update(context.Background(), operation, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	suspend(true)
	got := r.run("all", inPhase(v1alpha1.OperationPaused))
	if got.Status.Done != 1 || len(r.reboots()) != 1 || !strings.Contains(got.Status.Message, "spec.suspend") {
		t.Errorf("it is at %d machines with %v, and says %q", got.Status.Done, r.reboots(), got.Status.Message)
	}
	suspend(false)
	r.run("all", func(o *v1alpha1.TalosOperation) bool { return o.Status.Current == "cp-3" })
	// Nothing is left to suspend then.
	suspend(true)
	r.run("all", inPhase(v1alpha1.OperationSucceeded))
	r.asItWas()
}

func TestOperationsOfAClusterQueueInTheOrderOfTheirCreation(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 1)
	one := func(name string) func(*v1alpha1.TalosOperationSpec) {
		return func(spec *v1alpha1.TalosOperationSpec) {
			rebootAll(spec)
			spec.Machines = &v1alpha1.OperationMachines{Names: []string{name}}
		}
	}
	// By name the later ones would come first.
	r.create("z-first", one("cp-1"))
	r.clock.Step(time.Second)
	r.create("suspended", func(spec *v1alpha1.TalosOperationSpec) { one("cp-2")(spec); spec.Suspend = true })
	r.clock.Step(time.Second)
	r.create("a-second", one("cp-3"))
	r.create("look", func(spec *v1alpha1.TalosOperationSpec) { rebootAll(spec); spec.Mode = v1alpha1.OperationModePlan })
	got := r.run("a-second", inPhase(v1alpha1.OperationQueued))
	if !strings.Contains(got.Status.Message, "z-first") {
		t.Errorf("it says %q", got.Status.Message)
	}
	planned := r.run("look", inPhase(v1alpha1.OperationSucceeded))
	if len(planned.Status.Plan.Machines) != 4 || planned.Status.StartedAt != nil {
		t.Errorf("the plan alone is %+v", planned.Status)
	}
	r.run("a-second", inPhase(v1alpha1.OperationSucceeded))
	if r.operation("z-first").Status.Phase != v1alpha1.OperationSucceeded || r.operation("suspended").Status.Phase != v1alpha1.OperationPaused {
		t.Errorf("the first is %s, the suspended one %s", r.operation("z-first").Status.Phase, r.operation("suspended").Status.Phase)
	}
	if want := map[string]int{"cp-1": 1, "cp-3": 1}; !maps.Equal(r.reboots(), want) || r.worst != 1 {
		t.Errorf("rebooted %v, want %v", r.reboots(), want)
	}
}

func TestWhatIsRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*rig, *v1alpha1.TalosOperationSpec)
		phase  v1alpha1.OperationPhase
		words  string
	}{
		"a machine that isn't there": {func(_ *rig, s *v1alpha1.TalosOperationSpec) {
			s.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-1", "cp-9"}}
		}, v1alpha1.OperationFailed, "cp-9"},
		"a machine that is locked": {func(r *rig, s *v1alpha1.TalosOperationSpec) {
			r.change("cp-1", func(m *v1alpha1.TalosMachine) { m.Spec.Locked = true })
			s.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-1"}}
		}, v1alpha1.OperationFailed, "spec.locked is true for cp-1"},
		"a cluster that is locked":    {func(r *rig, _ *v1alpha1.TalosOperationSpec) { r.lockCluster(true) }, v1alpha1.OperationFailed, "spec.locked of cluster prod is true"},
		"another cluster":             {func(_ *rig, s *v1alpha1.TalosOperationSpec) { s.ClusterRef.Name = "edge" }, v1alpha1.OperationFailed, "no TalosCluster edge"},
		"a type that isn't there yet": {func(_ *rig, s *v1alpha1.TalosOperationSpec) { s.Reboot, s.RotateCA = nil, &v1alpha1.RotateCA{} }, v1alpha1.OperationFailed, "rotateCA"},
		"labels that nobody has": {func(_ *rig, s *v1alpha1.TalosOperationSpec) {
			s.Machines = &v1alpha1.OperationMachines{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "none"}}}
		}, v1alpha1.OperationFailed, "no approved machine of cluster prod fits"},
		"nothing that waits": {func(_ *rig, s *v1alpha1.TalosOperationSpec) {
			s.Reboot, s.ConfigRollout = nil, &v1alpha1.ConfigRollout{}
		}, v1alpha1.OperationSucceeded, "no machine has need of it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3, 0)
			r.create("one", func(spec *v1alpha1.TalosOperationSpec) { rebootAll(spec); c.change(r, spec) })
			got := r.run("one", inPhase(c.phase))
			if !strings.Contains(got.Status.Message, c.words) || len(r.reboots()) > 0 {
				t.Errorf("it says %q, and rebooted %v", got.Status.Message, r.reboots())
			}
			r.asItWas()
		})
	}
}

// A machine that somebody reboots meanwhile is not rebooted once more.
func TestARebootByHandCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 1)
	r.drainer.blockers["worker-1"] = []drain.Blocker{{Name: "pod a/b"}}
	r.create("one", func(spec *v1alpha1.TalosOperationSpec) {
		rebootAll(spec)
		spec.Machines = &v1alpha1.OperationMachines{Names: []string{"worker-1"}}
	})
	r.run("one", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "pod a/b") })
	ctx := context.Background()
	r.node["worker-1"].Do(func(s *talostest.State) { s.BootID = "boot-by-hand" })
	node, err := r.kube.CoreV1().Nodes().Get(ctx, "worker-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.NodeInfo.BootID = "boot-by-hand"
	if _, err := r.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(r.drainer.blockers, "worker-1")
	r.run("one", inPhase(v1alpha1.OperationSucceeded))
	if len(r.reboots()) > 0 {
		t.Errorf("rebooted %v", r.reboots())
	}
	r.asItWas()
}
