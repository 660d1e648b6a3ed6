// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// allPlacesTaken are a worker that is being configured anew, as the only one that may be, and one that waits for it.
func allPlacesTaken(t *testing.T) (s *stack, first, second string) {
	t.Helper()
	s, names := joined(t, 11, 12)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 1 })
	for _, name := range names {
		s.mustReconcile(name)
	}
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	if is := s.mustReconcile(names[0]); !isBeingConfigured(is) {
		t.Fatalf("the first isn't being configured: %s", describeConditions(is))
	}
	return s, names[0], names[1]
}

// countCalls counts what is asked of machines from now on.
func (s *stack) countCalls() *atomic.Int32 {
	calls := &atomic.Int32{}
	s.world.Before = func() error {
		calls.Add(1)
		return nil
	}
	return calls
}

func TestAWorkerIsNotLookedAtForAPatchThatItsTurnHasntComeFor(t *testing.T) {
	t.Parallel()
	s, first, second := allPlacesTaken(t)
	calls := s.countCalls()
	after, err := s.reconcile(second)
	if err != nil {
		t.Fatal(err)
	}
	waiting := s.get(second)
	wantCondition(t, waiting, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn, "spec.apply.maxParallel")
	if !isTrue(waiting, v1alpha1.ConditionReady) || calls.Load() != 0 || after <= 0 || after > pollReady {
		t.Errorf("called %d times, next look after %s: %s", calls.Load(), after, describeConditions(waiting))
	}
	// The regular look is taken all the same.
	s.clock.Step(pollReady)
	s.mustReconcile(second)
	if calls.Load() == 0 {
		t.Error("the machine was left alone longer than it would be otherwise")
	}
	was := s.get(first)
	is := s.mustReconcile(first)
	s.due()
	s.machine.enqueueChanged(was, is)
	if got := s.called(); !slices.Contains(got, second) {
		t.Fatalf("called are %q, want %s, which waits; %s", got, second, describeConditions(is))
	}
	s.mustReconcile(second)
	s.settle(second)
	if got := s.applies(second); got != 2 {
		t.Errorf("the second got %d configurations, want 2", got)
	}
}

func TestAWaitingWorkerThatIsntWellIsLookedAt(t *testing.T) {
	t.Parallel()
	s, _, second := allPlacesTaken(t)
	s.changeMachine(second, func(m *v1alpha1.TalosMachine) { setFalse(m, v1alpha1.ConditionReady, v1alpha1.ReasonNodeNotReady, "") })
	calls := s.countCalls()
	s.mustReconcile(second)
	if calls.Load() == 0 {
		t.Error("a machine that isn't Ready was left alone")
	}
}

func TestAPatchForAFleetBringsLooksLittleByLittle(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 5 })
	var all []*v1alpha1.TalosMachine
	for n := range 60 {
		m := &v1alpha1.TalosMachine{}
		m.Name, m.Spec.Role, m.Spec.ClusterRef.Name = fmt.Sprintf("m-%02d", n), v1alpha1.RoleWorker, "prod"
		if n > 56 {
			m.Spec.Role = v1alpha1.RoleControlPlane
		}
		all = append(all, m)
	}
	s.sync()
	s.due()
	s.machine.enqueueSpread(all)
	if got, want := s.due(), []string{"m-57", "m-58", "m-59", "m-00", "m-01"}; !slices.Equal(got, append(want, "m-02")[:len(got)]) || len(got) < len(want) {
		t.Errorf("looked at first are %v, want %v", got, want)
	}
	s.clock.Step(55 * time.Second / waitingPerSecond)
	rest := make(chan string, len(all))
	go func() {
		for {
			name, ended := s.machine.queue.Get()
			if ended {
				return
			}
			s.machine.queue.Done(name)
			rest <- name
		}
	}()
	defer s.machine.queue.ShutDown()
	for n := range len(all) - 6 {
		select {
		case <-rest:
		case <-time.After(time.Minute):
			t.Fatalf("%d more machines are looked at, want %d", n, len(all)-6)
		}
	}
}

func TestMachinesThatTakeAChangeUpAreLookedAtLessOftenTheMoreThereAre(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 500 })
	const others = 99
	for n := range others {
		s.add(12+n, func(m *v1alpha1.TalosMachine) {
			m.Spec.Hostname = fmt.Sprintf("other-%d", n)
			setTrue(m, v1alpha1.ConditionJoined, v1alpha1.ReasonJoined, "")
			setFalse(m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplying, "")
		})
	}
	s.sync()
	v := s.machine.visit(s.get(names[0]))
	setFalse(v.m, v1alpha1.ConditionConfigApplied, v1alpha1.ReasonApplying, "")
	v.after = pollFast
	if got, want := v.paced(), others*time.Second/looksPerSecond; got != want {
		t.Errorf("the next look is due after %s, want %s", got, want)
	}
}

// A machine that is waited for is looked at as soon as it runs something else; changes by others are gathered.
func TestTheMachineThatIsWaitedForIsLookedAtAtOnce(t *testing.T) {
	t.Parallel()
	s, first, second := allPlacesTaken(t)
	s.due()
	s.machine.RunsAnother(first)
	s.machine.RunsAnother(second)
	if got := s.due(); !slices.Equal(got, []string{first}) {
		t.Errorf("looked at at once are %v, want %s", got, first)
	}
}
