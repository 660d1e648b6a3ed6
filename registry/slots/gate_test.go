// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/slots"
)

func request(name, hostname string) slots.Request {
	return slots.Request{Cluster: "prod", MachineUID: types.UID("uid-of-" + name), Machine: name, Hostname: hostname}
}

func causes(err error) []metav1.CauseType {
	var out []metav1.CauseType
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			out = append(out, cause.Type)
		}
	}
	return out
}

func TestClaimRefusesBeyondTheLimitAndNamesTheHolders(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	f.addCluster("prod", 1)
	gate := slots.NewGate(f)
	for _, name := range []string{"a", "b", "c"} {
		f.addMachine(name, "prod")
	}
	for _, name := range []string{"a", "b"} {
		if err := approve(ctx, f, gate, name, "host-"+name, 1); err != nil {
			t.Fatalf("approve %s within the limit: %v", name, err)
		}
	}
	err := approve(ctx, f, gate, "c", "host-c", 1)
	if !apierrors.IsForbidden(err) || len(causes(err)) != 1 || causes(err)[0] != slots.CauseCapacity {
		t.Fatalf("approve beyond the limit: %v, want a 403 with cause %s", err, slots.CauseCapacity)
	}
	for _, want := range []string{"count of 1", "at most 2", "a (host-a)", "b (host-b)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("refusal %q doesn't say %q", err, want)
		}
	}
	if got := f.clusters["prod"].Status.ControlPlanes; got.Approved != 2 || got.Limit != 2 {
		t.Errorf("counts %+v, want 2 of 2", got)
	}
}

func TestClaimAgainRewritesTheToken(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	f.addCluster("prod", 1)
	gate := slots.NewGate(f)
	first, err := gate.Claim(ctx, request("a", ""))
	if err != nil {
		t.Fatal(err)
	}
	second, err := gate.Claim(ctx, request("a", ""))
	if err != nil {
		t.Fatal(err)
	}
	held := f.clusters["prod"].Status.ControlPlaneSlots
	if len(held) != 1 || first.Token == second.Token || held[0].Token != second.Token {
		t.Errorf("tokens %q then %q, slots %+v; want one slot with the second token", first.Token, second.Token, held)
	}
}

func TestHostnamesOfControlPlanesAreUnique(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	f.addCluster("prod", 4)
	gate := slots.NewGate(f)
	f.addMachine("a", "prod")
	f.addMachine("b", "prod")
	if err := approve(ctx, f, gate, "a", "cp-1", 1); err != nil {
		t.Fatal(err)
	}
	err := approve(ctx, f, gate, "b", "cp-1", 1)
	if !apierrors.IsForbidden(err) || causes(err)[0] != slots.CauseHostnameTaken {
		t.Errorf("second control plane of one hostname: %v, want a 403 with cause %s", err, slots.CauseHostnameTaken)
	}
	if err := approve(ctx, f, gate, "b", "cp-2", 1); err != nil {
		t.Errorf("another hostname: %v", err)
	}
}

func TestTwoApprovalsOfOneMachineWithTwoHostnames(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	f.addCluster("prod", 4)
	gate := slots.NewGate(f)
	judged := f.addMachine("a", "prod").ResourceVersion
	for _, hostname := range []string{"cp-1", "cp-2"} {
		if _, err := gate.Claim(ctx, request("a", hostname)); err != nil {
			t.Fatalf("claim with hostname %s: %v", hostname, err)
		}
	}
	if held := f.clusters["prod"].Status.ControlPlaneSlots; len(held) != 1 || held[0].Hostname != "cp-2" {
		t.Errorf("slots %+v, want one with the second hostname", held)
	}
	if now := f.machines["a"].ResourceVersion; now == judged {
		t.Errorf("the machine still has version %s, so the approval with the first hostname could be stored beside a slot with the second", now)
	}
	if err := approve(ctx, f, gate, "a", "cp-3", 3); err != nil {
		t.Fatal(err)
	}
	if _, err := gate.Claim(ctx, request("a", "cp-4")); !apierrors.IsConflict(err) {
		t.Errorf("claim with another hostname for an approved machine: %v, want a conflict", err)
	}
	if held := f.clusters["prod"].Status.ControlPlaneSlots; len(held) != 1 || held[0].Hostname != "cp-3" {
		t.Errorf("slots %+v, want one with the approved hostname", held)
	}
}

func TestClaimInADeletingClusterIsRefused(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	now := metav1.Now()
	f.addCluster("prod", 1).DeletionTimestamp = &now
	if _, err := slots.NewGate(f).Claim(ctx, request("a", "")); !apierrors.IsForbidden(err) {
		t.Errorf("claim: %v, want a 403", err)
	}
}

func TestCheckChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	before := f.addCluster("prod", 1).ResourceVersion
	if _, err := slots.NewGate(f).Check(ctx, request("a", "")); err != nil {
		t.Fatal(err)
	}
	if after := f.clusters["prod"]; after.ResourceVersion != before || len(after.Status.ControlPlaneSlots) != 0 {
		t.Errorf("a dry run changed the cluster: %+v", after.Status)
	}
}

func TestReap(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		age   time.Duration
		setup func(*fakeStore)
		want  int
	}{
		"the machine is approved":             {time.Hour, func(f *fakeStore) { approveDirectly(f, "a", ichor.RoleControlPlane) }, 1},
		"the machine is gone":                 {0, func(f *fakeStore) { delete(f.machines, "a") }, 0},
		"the machine was made again":          {0, func(f *fakeStore) { f.machines["a"].UID = "another" }, 0},
		"the machine became a worker":         {0, func(f *fakeStore) { approveDirectly(f, "a", ichor.RoleWorker) }, 0},
		"an approval may still be on its way": {time.Minute, func(*fakeStore) {}, 1},
		"the approval failed long ago":        {time.Hour, func(*fakeStore) {}, 0},
		"the machine was approved into another place": {0, func(f *fakeStore) {
			approveDirectly(f, "a", ichor.RoleControlPlane)
			f.machines["a"].Spec.ClusterRef.Name = "other"
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, f, now := context.Background(), newFakeStore(), start
			f.addCluster("prod", 1)
			f.addMachine("a", "prod")
			gate := slots.NewGate(f, slots.WithClock(func() time.Time { return now }))
			if _, err := gate.Claim(ctx, request("a", "")); err != nil {
				t.Fatal(err)
			}
			tc.setup(f)
			now = start.Add(tc.age)
			if _, err := gate.Reap(ctx, "prod"); err != nil {
				t.Fatal(err)
			}
			if got := len(f.clusters["prod"].Status.ControlPlaneSlots); got != tc.want {
				t.Errorf("%d slots after reaping, want %d", got, tc.want)
			}
		})
	}
}

func TestStaleSlotsAreReapedBeforeRefusing(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	f.addCluster("prod", 1)
	gate := slots.NewGate(f)
	for _, name := range []string{"gone-1", "gone-2"} {
		if _, err := gate.Claim(ctx, request(name, "cp-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	f.addMachine("a", "prod")
	if err := approve(ctx, f, gate, "a", "cp-gone-1", 1); err != nil {
		t.Errorf("approve while only machines that are gone hold slots: %v", err)
	}
}

func TestReleaseFreesTheSlotOfADeletedMachineOnly(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	f.addCluster("prod", 1)
	f.addMachine("a", "prod")
	gate := slots.NewGate(f)
	if err := approve(ctx, f, gate, "a", "", 1); err != nil {
		t.Fatal(err)
	}
	uid := f.machines["a"].UID
	if err := gate.Release(ctx, "prod", uid); err != nil || len(f.clusters["prod"].Status.ControlPlaneSlots) != 1 {
		t.Errorf("release of a machine that is there: %v, slots %+v; want the slot kept", err, f.clusters["prod"].Status.ControlPlaneSlots)
	}
	delete(f.machines, "a")
	if err := gate.Release(ctx, "prod", uid); err != nil || len(f.clusters["prod"].Status.ControlPlaneSlots) != 0 {
		t.Errorf("release of a machine that is gone: %v, slots %+v; want none", err, f.clusters["prod"].Status.ControlPlaneSlots)
	}
}

func TestManyApproveAtOnce(t *testing.T) {
	t.Parallel()
	ctx, f := context.Background(), newFakeStore()
	f.addCluster("prod", 3)
	f.check = func(f *fakeStore) { verify(t, f) }
	for n := range 10 {
		f.addMachine(fmt.Sprintf("m%d", n), "prod")
	}
	var wg sync.WaitGroup
	for n := range 50 {
		gate := slots.NewGate(f, slots.WithGrace(0))
		wg.Go(func() {
			_ = approve(ctx, f, gate, fmt.Sprintf("m%d", n%10), fmt.Sprintf("host-%d", n%10), 5)
			if n%5 == 0 {
				_, _ = gate.Reap(ctx, "prod")
			}
		})
	}
	wg.Wait()
	if approved := approvedOf(f); len(approved) > 4 || len(approved) == 0 {
		t.Errorf("%d approved, want 1 to 4: %v", len(approved), approved)
	}
}

func approveDirectly(f *fakeStore, name string, role ichor.MachineRole) {
	m := f.machines[name]
	m.Spec.ApprovalState, m.Spec.Role, m.ResourceVersion = ichor.ApprovalApproved, role, f.next()
}

func approvedOf(f *fakeStore) []string {
	var names []string
	for name, m := range f.machines {
		if m.Spec.ApprovalState == ichor.ApprovalApproved {
			names = append(names, name)
		}
	}
	return names
}

// verify holds the store to the invariant: every approved control plane has a slot of its
// hostname, no two have one hostname, and slots keep to the limit.
func verify(t testing.TB, f *fakeStore) {
	t.Helper()
	cluster := f.clusters["prod"]
	held, hostnames := map[string]string{}, map[string]bool{}
	for _, slot := range cluster.Status.ControlPlaneSlots {
		held[string(slot.MachineUID)] = slot.Hostname
		if slot.Hostname != "" && hostnames[slot.Hostname] {
			t.Errorf("two slots have the hostname %s", slot.Hostname)
		}
		hostnames[slot.Hostname] = true
	}
	if len(held) > slots.Limit(cluster) {
		t.Errorf("%d slots held of %d", len(held), slots.Limit(cluster))
	}
	for _, name := range approvedOf(f) {
		if hostname, holds := held[string(f.machines[name].UID)]; !holds || hostname != f.machines[name].Spec.Hostname {
			t.Errorf("%s is approved as %q; it holds a slot: %t, as %q", name, f.machines[name].Spec.Hostname, holds, hostname)
		}
	}
}
