// SPDX-License-Identifier: Apache-2.0

package configwatch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func identityOf(n int) v1alpha1.MachineIdentity {
	return v1alpha1.MachineIdentity{
		UUID: fmt.Sprintf("4c4c4544-0051-3610-8052-b4c04f4c31%02d", n), SerialNumber: fmt.Sprintf("S%d", n), MACAddresses: []string{fmt.Sprintf("02:00:5e:00:53:%02d", n)},
	}
}

func addressOf(n int) string { return fmt.Sprintf("10.0.0.%d", n) }

// object is a machine that runs with its configuration and answers.
func object(n int) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", n), UID: types.UID(fmt.Sprintf("uid-%d", n))}}
	m.Spec.ApprovalState, m.Spec.ClusterRef.Name, m.Spec.Identity = v1alpha1.ApprovalApproved, "prod", identityOf(n)
	now := metav1.Now()
	m.Status.Provisioning = &v1alpha1.ProvisioningStatus{AppliedAt: &now, ConvergedAt: &now}
	m.Status.Addresses = []string{addressOf(n)}
	m.Status.Config = &v1alpha1.MachineConfigStatus{RunningHash: machineconfig.Hash([]byte("first"))}
	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAnswers}}
	return m
}

// stack is a running controller, the API it reads and the machines it watches.
type stack struct {
	t        *testing.T
	api      *fake.Clientset
	clock    *clocktesting.FakeClock
	machines map[string]*talostest.Machine
	changed  chan string
	stop     func()
}

func (s *stack) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	return talos.Credentials{}, nil
}

func start(t *testing.T, most int, objects ...*v1alpha1.TalosMachine) *stack {
	t.Helper()
	s := &stack{
		t: t, api: fake.NewSimpleClientset(), clock: clocktesting.NewFakeClock(time.Now()),
		machines: map[string]*talostest.Machine{}, changed: make(chan string, 64),
	}
	world := talostest.NewWorld()
	for i, m := range objects {
		if err := s.api.Tracker().Add(m); err != nil {
			t.Fatal(err)
		}
		s.machines[m.Name] = talostest.NewMachine(talostest.State{
			Mode: talostest.Configured, Config: []byte("first"), Facts: talos.Facts{Identity: identityOf(i + 1)},
		})
		world.Put(addressOf(i+1), s.machines[m.Name])
	}
	factory := externalversions.NewSharedInformerFactory(s.api, 0)
	c, err := New(Config{
		Machines: factory.Ichor().V1alpha1().TalosMachines(), Credentials: s, Dialer: world, Changed: func(name string) { s.changed <- name }, Most: most, Clock: s.clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}
	t.Cleanup(s.stop)
	return s
}

func (s *stack) eventually(what string, holds func() bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

// watches waits until a machine has so many watches.
func (s *stack) watches(name string, want int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s has %d watches", name, want), func() bool { return s.machines[name].Snapshot().Watches == want })
}

func (s *stack) hears(want string) {
	s.t.Helper()
	select {
	case got := <-s.changed:
		if got != want {
			s.t.Fatalf("heard of %s, want %s", got, want)
		}
	case <-time.After(patience):
		s.t.Fatalf("nothing was heard of %s", want)
	}
}

func (s *stack) hearsNothing() {
	s.t.Helper()
	select {
	case got := <-s.changed:
		s.t.Fatalf("heard of %s, where nothing changed", got)
	default:
	}
}

// byHand changes what a machine runs.
func (s *stack) byHand(name, text string) {
	s.machines[name].Do(func(state *talostest.State) { state.Config = []byte(text) })
}

func (s *stack) update(m *v1alpha1.TalosMachine) {
	s.t.Helper()
	if _, err := s.api.IchorV1alpha1().TalosMachines().Update(context.Background(), m, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func TestAChangeByHandIsHeardOfWithoutALook(t *testing.T) {
	t.Parallel()
	s := start(t, 0, object(1), object(2))
	s.watches("m1", 1)
	s.watches("m2", 1)
	s.hearsNothing()
	s.byHand("m2", "second")
	s.hears("m2")
	s.byHand("m1", "second")
	s.hears("m1")
	s.hearsNothing()
}

func TestAConnectionThatIsLostComesBackAndNothingIsMissed(t *testing.T) {
	t.Parallel()
	s := start(t, 0, object(1))
	s.watches("m1", 1)
	s.machines["m1"].Do(func(state *talostest.State) { state.WatchErr = errors.New("the connection is gone") })
	s.watches("m1", 0)
	s.byHand("m1", "second")
	for range 3 { // each attempt fails
		s.eventually("it waits before it tries again", s.clock.HasWaiters)
		s.hearsNothing()
		s.clock.Step(2 * retryLongest)
	}
	s.machines["m1"].Do(func(state *talostest.State) { state.WatchErr = nil })
	s.eventually("it tries again", func() bool { s.clock.Step(retryLongest); return s.machines["m1"].Snapshot().Watches == 1 })
	s.hears("m1")
}

func TestAnotherMachineAtTheAddressIsNotBelieved(t *testing.T) {
	t.Parallel()
	impostor := object(1)
	impostor.Spec.Identity = identityOf(7) // what answers is machine 1
	s := start(t, 0, impostor)
	s.eventually("it gives up for now", s.clock.HasWaiters)
	s.byHand("m1", "second")
	s.clock.Step(2 * retryLongest)
	s.eventually("it gives up again", s.clock.HasWaiters)
	s.watches("m1", 0)
	s.hearsNothing()
}

func TestAWatchEndsWithWhatItIsFor(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*stack){
		"the machine doesn't answer any more": func(s *stack) {
			m := object(1)
			m.Status.Conditions[0].Status = metav1.ConditionFalse
			s.update(m)
		},
		"it is being removed": func(s *stack) {
			m := object(1)
			now := metav1.Now()
			m.DeletionTimestamp, m.Finalizers = &now, []string{v1alpha1.MachineFinalizer}
			s.update(m)
		},
		"its object is gone": func(s *stack) {
			if err := s.api.IchorV1alpha1().TalosMachines().Delete(context.Background(), "m1", metav1.DeleteOptions{}); err != nil {
				s.t.Fatal(err)
			}
		},
		"the lead is lost": func(s *stack) { s.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, 0, object(1))
			s.watches("m1", 1)
			end(s)
			s.watches("m1", 0)
		})
	}
}

func TestAMachineThatAnswersAgainOrMovedIsWatchedAgain(t *testing.T) {
	t.Parallel()
	silent := object(1)
	silent.Status.Conditions[0].Status = metav1.ConditionFalse
	s := start(t, 0, silent, object(2))
	s.watches("m2", 1)
	s.watches("m1", 0)
	s.update(object(1))
	s.watches("m1", 1)
	moved := object(1)
	moved.Status.Addresses = []string{addressOf(9)} // where nobody answers
	s.update(moved)
	s.watches("m1", 0)
}

func TestNoMoreMachinesAreWatchedThanMayBe(t *testing.T) {
	t.Parallel()
	s := start(t, 2, object(1), object(2), object(3))
	total := func() (all int) {
		for _, m := range s.machines {
			all += m.Snapshot().Watches
		}
		return all
	}
	s.eventually("two are watched", func() bool { return total() == 2 })
	s.update(object(1))
	s.update(object(2))
	s.update(object(3))
	s.eventually("still two are watched", func() bool { return total() == 2 })
}

func TestWhatIsWatched(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		want   string // the address; empty: not watched
	}{
		"a machine that runs":         {func(*v1alpha1.TalosMachine) {}, "10.0.0.1"},
		"one that nobody approved":    {func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalPending }, ""},
		"one without a configuration": {func(m *v1alpha1.TalosMachine) { m.Status.Provisioning = nil }, ""},
		"one that is being installed": {func(m *v1alpha1.TalosMachine) { m.Status.Provisioning.ConvergedAt = nil }, ""},
		"an adopted one":              {func(m *v1alpha1.TalosMachine) { m.Status.Provisioning, m.Spec.Origin = nil, v1alpha1.MachineAdopted }, "10.0.0.1"},
		"an adopted one that was never read": {func(m *v1alpha1.TalosMachine) {
			m.Status.Addresses, m.Spec.Origin, m.Spec.Address = nil, v1alpha1.MachineAdopted, "10.0.0.8"
		}, "10.0.0.8"},
		"one of which no address is known": {func(m *v1alpha1.TalosMachine) { m.Status.Addresses = nil }, ""},
		"one that never answered":          {func(m *v1alpha1.TalosMachine) { m.Status.Conditions = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := object(1)
			tc.change(m)
			got, ok := targetOf(m)
			if ok != (tc.want != "") || ok && got.address.String() != tc.want {
				t.Errorf("watched: %v at %s, want %q", ok, got.address, tc.want)
			}
		})
	}
}
