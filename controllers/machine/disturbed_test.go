// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// A running machine is to be configured anew while it can't be reached, is slow, breaks off, or while something else answers
// in its place. Nothing is written anywhere meanwhile, a condition says why, and the machine gets it in the end, once.
func TestDisturbedWhileAPatchIsApplied(t *testing.T) {
	t.Parallel()
	const address = "10.0.0.11"
	state := func(change func(*talostest.State)) func(*stack, *talostest.Machine) {
		return func(_ *stack, m *talostest.Machine) { m.Do(change) }
	}
	other := func(change func(*talostest.State)) func(*stack, *talostest.Machine) {
		return func(s *stack, m *talostest.Machine) {
			is := m.Snapshot()
			is.Applied, is.Live = nil, true
			change(&is)
			s.machines["other"] = talostest.NewMachine(is)
			s.world.Put(address, s.machines["other"])
		}
	}
	home := func(s *stack, m *talostest.Machine) { s.world.Put(address, m) }
	for name, c := range map[string]struct {
		disturb, mend  func(*stack, *talostest.Machine)
		condition, why string
		status         metav1.ConditionStatus
		words          string
	}{
		"it is off": {
			state(func(s *talostest.State) { s.Mode = talostest.Off }), state(func(s *talostest.State) { s.Mode = talostest.Configured }),
			v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable, metav1.ConditionFalse, "nothing answers as this machine",
		},
		"it lets nobody in": {
			state(func(s *talostest.State) { s.Mode = talostest.Locked }), state(func(s *talostest.State) { s.Mode = talostest.Configured }),
			v1alpha1.ConditionReady, v1alpha1.ReasonUnreachable, metav1.ConditionFalse, "nobody lets us in",
		},
		"it is too slow to be read": {
			state(func(s *talostest.State) { s.Unreadable = true }), state(func(s *talostest.State) { s.Unreadable = false }),
			v1alpha1.ConditionReady, v1alpha1.ReasonUnreachable, metav1.ConditionFalse, "doesn't answer in time",
		},
		"the connection breaks before it arrives": {
			state(func(s *talostest.State) { s.Fault = talostest.LoseRequest }), state(func(s *talostest.State) { s.Fault = talostest.NoFault }),
			v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplying, metav1.ConditionFalse, "",
		},
		"another machine of the cluster answers at its address": {
			other(func(s *talostest.State) {
				s.Facts.Identity = v1alpha1.MachineIdentity{UUID: "4c4c4544-0051-3610-8052-b4c04f4c9999", SerialNumber: "other", MACAddresses: []string{"02:00:5e:00:53:99"}}
			}), home,
			v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable, metav1.ConditionFalse, "4c4c4544-0051-3610-8052-b4c04f4c9999",
		},
		"a machine with its UUID and another serial number answers": {
			other(func(s *talostest.State) { s.Facts.Identity.SerialNumber = "other" }), home,
			v1alpha1.ConditionReachable, v1alpha1.ReasonUnreachable, metav1.ConditionFalse, "other",
		},
		"one in maintenance mode answers at its address": {
			other(func(s *talostest.State) {
				s.Mode, s.Fingerprint = talostest.Maintenance, "somebody's"
				s.Facts.Identity.UUID = "4c4c4544-0051-3610-8052-b4c04f4c9999"
				s.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true}
			}), home,
			v1alpha1.ConditionConfigApplied, v1alpha1.ReasonWiped, metav1.ConditionFalse, "nothing was sent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, names := joined(t, 11)
			machine := names[0]
			before := s.runs(machine)
			c.disturb(s, s.machines[machine])
			s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
			for range 5 {
				_, _ = s.reconcile(machine)
				s.clock.Step(10 * time.Second)
			}
			if s.applies(machine) != 1 || s.runs(machine) != before {
				t.Errorf("the machine got %d configurations", s.applies(machine))
			}
			if other := s.machines["other"]; other != nil {
				if got := len(other.Snapshot().Applied); got > 0 {
					t.Errorf("what answers in its place got %d configurations", got)
				}
			}
			wantCondition(t, s.get(machine), c.condition, c.status, c.why, c.words)
			c.mend(s, s.machines[machine])
			s.clock.Step(time.Minute)
			s.mustReconcile(machine)
			s.settle(machine)
			if s.applies(machine) != 2 || !strings.Contains(s.runs(machine), "vm.swappiness") {
				t.Errorf("it is back, and got %d configurations in all: %s", s.applies(machine), describeConditions(s.get(machine)))
			}
			assertQuiet(t, s, machine)
		})
	}
}

// At whatever write the controller is killed, and if it dies while a machine takes its configuration, control planes end with
// it one after the other: none is sent it while another one is at it.
func TestKilledWhileControlPlanesAreConfiguredAnew(t *testing.T) {
	t.Parallel()
	const asTheMachineTakesIt = 0
	for moment := range 12 {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			names := []string{s.add(11, controlPlane), s.add(12, controlPlane)}
			s.settle(names...)
			taking := map[string]bool{}
			for _, name := range names {
				s.live(name)
				s.machines[name].Do(func(state *talostest.State) {
					state.OnApply = func() {
						for _, other := range names {
							if other != name && taking[other] && !isTrue(s.get(other), v1alpha1.ConditionReady) {
								t.Errorf("%s is sent its configuration while %s is at it", name, other)
							}
						}
						taking[name] = true
						if moment == asTheMachineTakesIt && len(taking) == 1 {
							s.process.kill()
						}
					}
				})
			}
			s.start(moment)
			s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
			for range 10 {
				for _, name := range names {
					_, _ = s.reconcile(name)
				}
			}
			s.process.kill()
			s.start(0)
			for range 3 {
				for _, name := range names {
					s.mustReconcile(name)
				}
			}
			s.settle(names...)
			for _, name := range names {
				m := s.get(name)
				if !strings.Contains(s.runs(name), "vm.swappiness") || len(m.Status.Config.Patches) != 1 || s.applies(name) > 3 {
					t.Errorf("%s got %d configurations, and has %v: %s", name, s.applies(name), m.Status.Config.Patches, describeConditions(m))
				}
				assertQuiet(t, s, name)
			}
		})
	}
}

// called are the machines that are to be looked at at once, sorted.
func (s *stack) called() []string {
	var called []string
	for s.machine.queue.Len() > 0 {
		name, _ := s.machine.queue.Get()
		called = append(called, name)
		s.machine.queue.Done(name)
	}
	slices.Sort(called)
	return called
}

// As many machines that wait are called as there are places, not those that have one already.
func TestAsManyAreCalledAsThereArePlaces(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11, 12, 13, 14, 15, 16)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 2 })
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	for _, name := range names {
		s.mustReconcile(name)
	}
	for _, name := range names[:2] {
		was := s.get(name)
		s.settle(name)
		s.machine.enqueueChanged(was, s.get(name))
	}
	called := slices.DeleteFunc(s.called(), func(name string) bool { return slices.Contains(names[:2], name) }) // their own look
	if want := names[2:4]; !slices.Equal(called, want) {
		t.Errorf("called are %q, want %q", called, want)
	}
}
