// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/test/apiserver/harness"
)

// TestParallelApprovalsNeverPassTheLimit approves ten machines from fifty goroutines through three servers, by update and
// by patch, while the controller writes their status and slots are reaped at once, and then goes through every revision
// that etcd has seen.
func TestParallelApprovalsNeverPassTheLimit(t *testing.T) {
	t.Parallel()
	const machines, limit = 10, 4
	w, ctx := newWorld(t, limit-1, machines, harness.Servers(3), harness.Gate(slots.WithGrace(0))), testContext(t)
	start := w.revision(t)
	var approvals, observers sync.WaitGroup
	over := make(chan struct{})
	for n := range 2 {
		observers.Go(func() { w.observe(t, n, machines, over) })
	}
	for n := range 50 {
		approvals.Go(func() {
			if err := w.contend(ctx, t, n%3, n%machines, n%2 == 0); err != nil && !apierrors.IsConflict(err) && !hasCause(err, "ControlPlaneCapacity") {
				t.Errorf("approve machine %d: %v", n%machines, err)
			}
		})
	}
	approvals.Wait()
	close(over)
	observers.Wait()
	// Whoever lost to a reaper tries again, alone now, until all slots are used.
	var last error
	for n := range machines {
		if err := w.contend(ctx, t, 0, n, false); err != nil {
			last = err
		}
	}
	if !hasCause(last, "ControlPlaneCapacity") {
		t.Errorf("after all, the last word is %v, want that all slots are held", last)
	}
	if most := w.replay(t, start); most != limit {
		t.Errorf("at most %d control planes were approved at a time, want exactly the limit of %d", most, limit)
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
		if _, err := client.Patch(ctx, machineUUID(n%machines), types.MergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
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

func (w *world) revision(t *testing.T) int64 {
	t.Helper()
	got, err := w.Etcd.Get(testContext(t), w.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.Revision
}

// replay goes through all revisions since the start and holds each to the invariant: every approved control plane has a
// slot, and slots keep to the limit. It returns how many were approved at most.
func (w *world) replay(t *testing.T, start int64) int {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	end := w.revision(t)
	approved, held, most := map[string]bool{}, map[string]bool{}, 0
	if _, err := w.Etcd.Put(ctx, w.Prefix+"-end", ""); err != nil { // so that the watch has something to end at
		t.Fatal(err)
	}
	for response := range w.Etcd.Watch(ctx, w.Prefix, clientv3.WithPrefix(), clientv3.WithRev(start)) {
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range response.Events {
			if event.Kv.ModRevision > end {
				return most
			}
			key := strings.TrimPrefix(string(event.Kv.Key), w.Prefix)
			switch {
			case strings.HasPrefix(key, "/talosmachines/"):
				var m v1alpha1.TalosMachine
				if event.Type == clientv3.EventTypePut {
					if err := json.Unmarshal(event.Kv.Value, &m); err != nil {
						t.Fatal(err)
					}
					delete(approved, string(m.UID))
					if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.Spec.Role == v1alpha1.RoleControlPlane {
						approved[string(m.UID)] = true
					}
				}
			case strings.HasPrefix(key, "/talosclusters/"):
				var c v1alpha1.TalosCluster
				if err := json.Unmarshal(event.Kv.Value, &c); err != nil {
					t.Fatal(err)
				}
				clear(held)
				for _, slot := range c.Status.ControlPlaneSlots {
					held[string(slot.MachineUID)] = true
				}
				if len(held) > int(c.Spec.ControlPlane.Count)+1 {
					t.Errorf("revision %d: %d slots held of %d", event.Kv.ModRevision, len(held), c.Spec.ControlPlane.Count+1)
				}
			}
			for uid := range approved {
				if !held[uid] {
					t.Errorf("revision %d: machine with UID %s is approved without a slot", event.Kv.ModRevision, uid)
				}
			}
			most = max(most, len(approved))
		}
	}
	t.Fatal("the watch of etcd ended early")
	return 0
}
