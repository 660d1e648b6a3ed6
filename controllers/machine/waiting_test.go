// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// due are the machines that are looked at next, in order.
func (s *stack) due() []string {
	s.t.Helper()
	var names []string
	for s.machine.queue.Len() > 0 {
		name, _ := s.machine.queue.Get()
		s.machine.queue.Done(name)
		names = append(names, name)
	}
	return names
}

// oneAtATime is a stack with a worker on its way and others that wait for their turn.
func oneAtATime(t *testing.T, waiting int) (s *stack, first string, others []string) {
	t.Helper()
	s = newStack(t)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 1 })
	first = s.add(11)
	for n := range waiting {
		others = append(others, s.add(12+n))
	}
	s.mustReconcile(first)
	for _, name := range others {
		wantCondition(t, s.mustReconcile(name), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn)
	}
	s.due()
	return s, first, others
}

func TestAWorkerThatWaitsForItsTurnIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, _, others := oneAtATime(t, 1)
	var calls atomic.Int32
	s.world.Before = func() error {
		calls.Add(1)
		return nil
	}
	after, err := s.reconcile(others[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := calls.Load(); got != 0 {
		t.Errorf("the machine was called %d times", got)
	}
	if after != pollTurn {
		t.Errorf("the next look is due after %s, want %s", after, pollTurn)
	}
}

func TestTheNextInLineIsCalledWhenAPlaceGetsFree(t *testing.T) {
	t.Parallel()
	joined := func(m *v1alpha1.TalosMachine) { setTrue(m, v1alpha1.ConditionJoined, v1alpha1.ReasonJoined, "") }
	for name, change := range map[string]func(*v1alpha1.TalosMachine){
		"by a worker that joined":        joined,
		"by a worker that was rejected":  func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalRejected },
		"by a worker that was made anew": func(m *v1alpha1.TalosMachine) { m.UID, m.Status.Provisioning = "another", nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, first, others := oneAtATime(t, 3)
			was := s.get(first)
			s.changeMachine(first, change)
			s.sync()
			s.machine.enqueueChanged(was, s.get(first))
			got := s.due()
			if len(got) == 0 || got[0] != others[0] {
				t.Errorf("want the one that was approved first, %s, called first; got %v", others[0], got)
			}
			for _, late := range others[1:] {
				for _, called := range got {
					if called == late {
						t.Errorf("%s was called, but there was one place", late)
					}
				}
			}
		})
	}
	t.Run("by a worker that was deleted", func(t *testing.T) {
		t.Parallel()
		s, first, others := oneAtATime(t, 2)
		was := s.get(first)
		if err := s.api.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), "", first); err != nil {
			t.Fatal(err)
		}
		s.sync()
		s.machine.enqueueGone(was)
		if diff := cmp.Diff([]string{first, others[0]}, s.due()); diff != "" {
			t.Errorf("looks that are due (-want +got):\n%s", diff)
		}
	})
}

func TestWhoCannotUseItsTurnLeavesItToTheNext(t *testing.T) {
	t.Parallel()
	s, first, others := oneAtATime(t, 2)
	s.changeMachine(others[0], func(m *v1alpha1.TalosMachine) { annotate(m, v1alpha1.HoldApplyAnnotation, "x") })
	s.changeMachine(first, func(m *v1alpha1.TalosMachine) { setTrue(m, v1alpha1.ConditionJoined, v1alpha1.ReasonJoined, "") })
	wantCondition(t, s.mustReconcile(others[0]), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonHeld)
	if diff := cmp.Diff([]string{others[1]}, s.due()); diff != "" {
		t.Errorf("looks that are due (-want +got):\n%s", diff)
	}
}

func TestWhatOfAClusterConcernsItsMachines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.TalosCluster)
		want   int
	}{
		"the counts of its machines":   {func(c *v1alpha1.TalosCluster) { c.Status.Machines.Ready = 7 }, 0},
		"a scan's progress":            {func(c *v1alpha1.TalosCluster) { c.Status.Discovery.Phase = v1alpha1.DiscoveryScanning }, 0},
		"how many may be on their way": {func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 2 }, 1},
		"etcd isn't healthy any more":  {func(c *v1alpha1.TalosCluster) { c.Status.Conditions[0].Status = metav1.ConditionFalse }, 1},
		"a learner":                    {func(c *v1alpha1.TalosCluster) { c.Status.EtcdMembers = []v1alpha1.EtcdMember{{ID: "1", Learner: true}} }, 1},
		"a slot":                       {func(c *v1alpha1.TalosCluster) { c.Status.ControlPlaneSlots = []v1alpha1.ControlPlaneSlot{{Name: "m"}} }, 1},
		"its secrets":                  {func(c *v1alpha1.TalosCluster) { c.Status.SecretsBundleHash = "another" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			s.add(11)
			s.sync()
			was, err := s.machine.clusters.Get("prod")
			if err != nil {
				t.Fatal(err)
			}
			is := was.DeepCopy()
			is.ResourceVersion = was.ResourceVersion + "1"
			tc.change(is)
			s.machine.enqueueClusterChanged(was, is)
			if got := len(s.due()); got != tc.want {
				t.Errorf("%d looks are due, want %d", got, tc.want)
			}
		})
	}
}

func TestHeartbeatsOfANodeBringNoLook(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.sync()
	was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-11", ResourceVersion: "1"}}
	is := was.DeepCopy()
	is.ResourceVersion = "2"
	s.machine.enqueueNodeChanged(was, is)
	if got := s.due(); len(got) != 0 {
		t.Errorf("%v are looked at after a heartbeat", got)
	}
	is.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.machine.enqueueNodeChanged(was, is)
	if diff := cmp.Diff([]string{machine}, s.due()); diff != "" {
		t.Errorf("looks that are due once it is ready (-want +got):\n%s", diff)
	}
}

func TestManyMachinesOnTheirWayAreLookedAtLessOften(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 500 })
	machine := s.add(11)
	s.mustReconcile(machine)
	alone, err := s.reconcile(machine)
	if err != nil {
		t.Fatal(err)
	}
	const others = 99
	for n := range others {
		s.add(12+n, func(m *v1alpha1.TalosMachine) {
			m.Spec.Hostname = fmt.Sprintf("other-%d", n)
			m.Status.Provisioning = &v1alpha1.ProvisioningStatus{IntendedAt: &metav1.Time{Time: s.clock.Now()}}
		})
	}
	among, err := s.reconcile(machine)
	if err != nil {
		t.Fatal(err)
	}
	if alone != pollFast || among != (others+1)*time.Second/looksPerSecond {
		t.Errorf("the next look is due after %s alone and after %s among %d", alone, among, others+1)
	}
}
