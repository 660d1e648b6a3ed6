// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/test/apiserver/harness"
)

// TestParallelApprovalsNeverPassTheLimit approves ten machines from fifty goroutines through three servers, while others
// delete machines and reap slots, and then goes through every revision that etcd has seen.
func TestParallelApprovalsNeverPassTheLimit(t *testing.T) {
	t.Parallel()
	const machines, limit = 10, 4
	w, ctx := newWorld(t, limit-1, machines, harness.Servers(3), harness.Gate(slots.WithGrace(0))), testContext(t)
	start := w.revision(t)
	var approved, refused atomic.Int32
	var wg sync.WaitGroup
	for n := range 50 {
		client := w.Client(t, n%3, harness.Approver).IchorV1alpha1().TalosMachines()
		wg.Go(func() {
			name := machineUUID(n % machines)
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				seen, err := client.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				body := approve(seen, v1alpha1.RoleControlPlane)
				body.Spec.Hostname = fmt.Sprintf("cp-%d", n%machines)
				_, err = client.UpdateApproval(ctx, name, body, metav1.UpdateOptions{})
				return err
			})
			switch {
			case err == nil:
				approved.Add(1)
			case apierrors.IsForbidden(err) && hasCause(err, "ControlPlaneCapacity"):
				refused.Add(1)
			case apierrors.IsConflict(err):
			default:
				t.Errorf("approve machine %d: %v", n%machines, err)
			}
		})
	}
	wg.Wait()
	if approved.Load() < limit || refused.Load() == 0 {
		t.Errorf("%d approvals and %d refusals; want all %d slots used and the rest refused", approved.Load(), refused.Load(), limit)
	}
	if most := w.replay(t, start); most != limit {
		t.Errorf("at most %d control planes were approved at a time, want exactly the limit of %d", most, limit)
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
