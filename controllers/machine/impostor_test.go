// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"

	"maesh.dev/ichor/controllers/discovery"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// discover runs the search for machines once over some addresses, with all that it writes.
func (s *stack) discover(addresses ...string) {
	s.t.Helper()
	request := strconv.Itoa(len(s.api.Actions()))
	s.changeCluster(func(c *v1alpha1.TalosCluster) {
		c.Spec.Discovery.Addresses, c.Spec.Discovery.ScanRequest = addresses, request
	})
	factory := externalversions.NewSharedInformerFactory(s.api, 0)
	search, err := discovery.New(discovery.Config{
		Client: s.api, Machines: factory.Ichor().V1alpha1().TalosMachines(), Clusters: factory.Ichor().V1alpha1().TalosClusters(),
		Dialer: s.world, Prober: s.world, Credentials: s, Recorder: record.NewFakeRecorder(1000),
		Options: discovery.Options{Rate: rate.Inf},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- search.Run(ctx, 1) }()
	err = wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		cluster, err := s.api.IchorV1alpha1().TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
		return err == nil && cluster.Status.Discovery.ScanRequest == request, nil
	})
	if err != nil {
		s.t.Fatal("the search for machines didn't end")
	}
	cancel()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
	factory.Shutdown()
}

// Whoever is on the network can claim in maintenance mode to be a machine that lives: same UUID, serial number, MAC
// addresses and disks, and whatever addresses and links help. The search for machines finds it, and the machine's
// controller hears of it while it can't read the machine itself.
func TestAnImpostorOfALivingMachineGetsNothing(t *testing.T) {
	t.Parallel()
	nodeGone := func(s *stack) {
		if err := s.kube.CoreV1().Nodes().Delete(s.t.Context(), "node-11", metav1.DeleteOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	state := func(change func(*talostest.State)) func(*stack, *talostest.Machine) {
		return func(_ *stack, m *talostest.Machine) { m.Do(change) }
	}
	moved := func(s *stack, m *talostest.Machine) {
		s.world.Put("10.0.0.11", nil)
		s.world.Put("10.0.99.5", m)
	}
	for name, tc := range map[string]struct {
		impostor string
		machine  func(*stack, *talostest.Machine)
		node     func(*stack)
		back     func(*stack, *talostest.Machine)
	}{
		"the machine lets nobody in": {
			impostor: "10.0.0.12", node: nodeGone,
			machine: state(func(s *talostest.State) { s.Mode = talostest.Locked }),
			back:    state(func(s *talostest.State) { s.Mode = talostest.Configured }),
		},
		"the machine can't be read": {
			impostor: "10.0.0.12", node: nodeGone,
			machine: state(func(s *talostest.State) { s.Unreadable = true }),
			back:    state(func(s *talostest.State) { s.Unreadable = false }),
		},
		"the machine answers nonsense": {
			impostor: "10.0.0.12", node: nodeGone,
			machine: state(func(s *talostest.State) { s.Mode = talostest.NotTalos }),
			back:    state(func(s *talostest.State) { s.Mode = talostest.Configured }),
		},
		"the machine moved, and its kubelet reports": {
			impostor: "10.0.0.12", machine: moved,
			back: func(s *stack, m *talostest.Machine) { s.world.Put("10.0.0.11", m) },
		},
		"the machine moved, and the impostor is in a network that only it itself names": {
			impostor: "10.7.0.5", machine: moved, node: nodeGone,
			back: func(s *stack, m *talostest.Machine) { s.world.Put("10.0.0.11", m) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.settle(machine)
			claims := s.machines[machine].Snapshot().Facts
			claims.Addresses = []string{tc.impostor, "10.0.0.11"}
			claims.FirmwareRead, claims.SystemDisk = true, nil
			claims.Stage = talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true}
			inventory := claims.Inventory.DeepCopy()
			inventory.Links[0].Addresses = []string{netip.PrefixFrom(netip.MustParseAddr(tc.impostor), 24).String()}
			claims.Inventory = inventory
			impostor := talostest.NewMachine(talostest.State{Mode: talostest.Maintenance, Fingerprint: "impostor", Facts: claims})
			s.world.Put(tc.impostor, impostor)
			tc.machine(s, s.machines[machine])
			if tc.node != nil {
				tc.node(s)
			}
			for range 3 {
				s.discover("10.0.0.11", tc.impostor)
				s.mustReconcile(machine)
				s.mustReconcile(machine)
				s.clock.Step(time.Minute)
			}
			m := s.get(machine)
			if got := impostor.Snapshot().Applied; len(got) != 0 {
				t.Fatalf("the impostor got a configuration: %s", describeConditions(m))
			}
			if m.Status.Provisioning.Fingerprint != "fp-11-1" || m.Status.Provisioning.AppliedAt == nil || m.Status.Addresses[0] != "10.0.0.11" {
				t.Errorf("record %+v, addresses %v: %s", m.Status.Provisioning, m.Status.Addresses, describeConditions(m))
			}
			if isTrue(m, v1alpha1.ConditionReady) {
				t.Errorf("nobody was told: %s", describeConditions(m))
			}
			tc.back(s, s.machines[machine])
			if tc.node != nil {
				s.registerNode("node-11", "10.0.0.11")
			}
			m = s.mustReconcile(machine)
			wantCondition(t, m, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
			wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionTrue, v1alpha1.ReasonApplied)
			if got := s.applies(machine); got != 1 || len(impostor.Snapshot().Applied) != 0 {
				t.Errorf("configurations: machine %d, impostor %d", got, len(impostor.Snapshot().Applied))
			}
		})
	}
}

func TestAWipedMachineThatDiscoveryFindsElsewhereIsProvisionedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine := s.add(11)
	s.settle(machine)
	s.wipe(machine)
	s.world.Put("10.0.0.11", nil)
	s.world.Put("10.0.0.77", s.machines[machine])
	s.machines[machine].Do(func(state *talostest.State) {
		state.Facts.Addresses, state.Facts.FirmwareRead = []string{"10.0.0.77"}, true
	})
	s.discover("10.0.0.11", "10.0.0.77")
	s.settle(machine)
	if got := s.applies(machine); got != 2 {
		t.Errorf("the machine got %d configurations, want 2", got)
	}
}
