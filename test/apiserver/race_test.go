// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/test/apiserver/harness"
)

// TestParallelApprovalsNeverPassTheLimit approves ten machines from fifty goroutines through three servers, by update and
// by patch, while the controller writes their status and slots are reaped at once, and one server is killed. With all
// slots used, it does so again while the count is lowered. Then a server starts, which reaps, and all revisions that etcd
// has seen are gone through.
func TestParallelApprovalsNeverPassTheLimit(t *testing.T) {
	t.Parallel()
	const machines, limit, lowered = 10, 4, 3
	w, ctx := newWorld(t, limit-1, machines, harness.Servers(2), harness.Gate(slots.WithGrace(0))), testContext(t)
	victim := w.ServeProcess(t, 0)
	start, over := w.revision(t), make(chan struct{})
	var observers, lowering sync.WaitGroup
	for n := range 2 {
		observers.Go(func() { w.observe(t, n, machines, over) })
	}
	cut := w.storm(ctx, t, 50, machines, victim)
	w.fill(ctx, t, machines)
	lowering.Go(func() { w.lower(ctx, t, lowered-1, machines) })
	w.storm(ctx, t, 20, machines, -1)
	lowering.Wait()
	close(over)
	observers.Wait()
	w.fill(ctx, t, machines)
	w.ServeProcess(t, 0) // as the killed one when it is started again
	eventually(t, "the slots are those of the approved machines", func() bool { return w.settled(ctx, t, lowered) })
	seen := w.replay(t, start)
	t.Logf("%d approvals were cut off; %d revisions; at most %d approved, at most %d slots", cut, seen.revisions, seen.approved, seen.held)
	if seen.approved != limit || !seen.lowered || cut == 0 {
		t.Errorf("at most %d control planes were approved at a time of %d, the count was lowered: %t, %d approvals were cut off: the test shows too little",
			seen.approved, limit, seen.lowered, cut)
	}
}

// storm approves machines from many goroutines, and kills the victim, if there is one, when it has answered once. It returns how many
// found no server.
func (w *world) storm(ctx context.Context, t *testing.T, approvals, machines, victim int) int {
	servers := 2
	if victim >= 0 {
		servers = 3
	}
	var all sync.WaitGroup
	var ended, cut atomic.Int32
	for n := range approvals {
		all.Go(func() {
			server := n % servers
			err := w.contend(ctx, t, server, n%machines, n%2 == 0)
			if server == victim && ended.Add(1) == 1 {
				if err := w.Stop(victim); err != nil {
					t.Error(err)
				}
			}
			switch {
			case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err), hasCause(err, "ControlPlaneCapacity"):
			case server == victim && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
				cut.Add(1)
			default:
				t.Errorf("approve machine %d: %v", n%machines, err)
			}
		})
	}
	all.Wait()
	return int(cut.Load())
}

// fill approves machines one after the other until all slots are used: whoever lost to a reaper tries again, alone now.
func (w *world) fill(ctx context.Context, t *testing.T, machines int) {
	t.Helper()
	var last error
	for n := range machines {
		if err := w.contend(ctx, t, 0, n, false); err != nil && !apierrors.IsNotFound(err) {
			last = err
		}
	}
	if !hasCause(last, "ControlPlaneCapacity") {
		t.Errorf("after all, the last word is %v, want that all slots are held", last)
	}
}

// contend approves a machine as a control plane through a server, by update or by patch, and tries again if it moved.
func (w *world) contend(ctx context.Context, t *testing.T, server, n int, patch bool) error {
	client, name := w.Client(t, server, harness.Approver).IchorV1alpha1().TalosMachines(), machineUUID(n)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if patch {
			body := fmt.Appendf(nil, `{"spec":{"approvalState":"approved","role":"controlplane","hostname":"cp-%d","approval":{"maintenanceFingerprint":%q},"disks":[{"match":{"serial":"S1"},"role":"system"}]}}`, n, fingerprintOf(n, 0))
			_, err := client.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, "approval")
			return err
		}
		seen, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		body := approve(seen, v1alpha1.RoleControlPlane)
		body.Spec.Hostname = fmt.Sprintf("cp-%d", n)
		_, err = client.UpdateApproval(ctx, name, body, metav1.UpdateOptions{})
		return err
	})
}

// lower sets the count, below what is held: while that is refused, it removes a control plane and asks again.
func (w *world) lower(ctx context.Context, t *testing.T, count int32, machines int) {
	body := fmt.Appendf(nil, `{"spec":{"controlPlane":{"count":%d}}}`, count)
	for range machines {
		_, err := w.admin.IchorV1alpha1().TalosClusters().Patch(ctx, "prod", types.MergePatchType, body, metav1.PatchOptions{})
		if err == nil {
			return
		}
		if !apierrors.IsInvalid(err) || !hasCause(err, "spec.controlPlane.count") {
			t.Errorf("lower the count: %v", err)
			return
		}
		if err := w.removeOne(ctx); err != nil {
			t.Errorf("remove a control plane: %v", err)
			return
		}
	}
	t.Error("the count could never be lowered")
}

// removeOne removes an approved control plane, as a person and the controller do.
func (w *world) removeOne(ctx context.Context) error {
	list, err := w.approver.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, m := range list.Items {
		if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.DeletionTimestamp != nil {
			continue
		}
		err := w.approver.IchorV1alpha1().TalosMachines().Delete(ctx, m.Name, metav1.DeleteOptions{})
		if hasCause(err, "LastControlPlane") {
			return nil // slots of approvals on their way are held too; they end
		}
		if err != nil {
			return err
		}
		controller := w.controller.IchorV1alpha1().TalosMachines()
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			seen, err := controller.Get(ctx, m.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			seen.Finalizers = nil
			_, err = controller.Finalize(ctx, m.Name, seen, metav1.UpdateOptions{})
			return err
		})
	}
	return nil
}

// settled tells whether exactly the approved control planes hold slots, and as many as the limit allows.
func (w *world) settled(ctx context.Context, t *testing.T, limit int) bool {
	t.Helper()
	cluster, err := w.admin.IchorV1alpha1().TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := w.admin.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held, approved := map[types.UID]bool{}, map[types.UID]bool{}
	for _, slot := range cluster.Status.ControlPlaneSlots {
		held[slot.MachineUID] = true
	}
	for _, m := range list.Items {
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved {
			approved[m.UID] = true
		}
	}
	return maps.Equal(held, approved) && len(held) == limit
}

// observe writes the status of machines, as the controller does, until it is over.
func (w *world) observe(t *testing.T, server, machines int, over <-chan struct{}) {
	ctx, client := testContext(t), w.Client(t, server, harness.Controller).IchorV1alpha1().TalosMachines()
	for n := 0; ; n++ {
		select {
		case <-over:
			return
		default:
		}
		body := fmt.Appendf(nil, `{"status":{"hostname":"seen-%d"}}`, n)
		_, err := client.Patch(ctx, machineUUID(n%machines), types.MergePatchType, body, metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) { // a machine may have been removed
			t.Errorf("write status: %v", err)
			return
		}
	}
}

func TestTwoControlPlanesOfOneHostname(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 5, 2, harness.Servers(2)), testContext(t)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for n := range errs {
		client := w.Client(t, n, harness.Approver).IchorV1alpha1().TalosMachines()
		wg.Go(func() {
			body := approve(w.machines[n], v1alpha1.RoleControlPlane)
			body.Spec.Hostname = "cp-1"
			_, errs[n] = client.UpdateApproval(ctx, body.Name, body, metav1.UpdateOptions{})
		})
	}
	wg.Wait()
	loser := errs[0]
	if loser == nil {
		loser = errs[1]
	}
	if (errs[0] == nil) == (errs[1] == nil) || !(apierrors.IsForbidden(loser) && hasCause(loser, "HostnameTaken") || apierrors.IsInvalid(loser) && hasCause(loser, "spec.hostname")) {
		t.Errorf("two at once: %v and %v; want one approved and the other told that the hostname is taken", errs[0], errs[1])
	}
}
