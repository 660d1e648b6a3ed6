// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// revision is etcd's now.
func (w *world) revision(t *testing.T) int64 {
	t.Helper()
	got, err := w.Etcd.Get(testContext(t), w.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.Revision
}

// replayed is what a replay has seen: how many revisions, and the most control planes and slots in one of them.
type replayed struct {
	revisions, approved, held int
	// lowered: the limit was lower in a later revision than in an earlier one.
	lowered bool
}

// gateState is what the gate is about, as it is in one revision.
type gateState struct {
	// approved are the UIDs and hostnames of the approved control planes, by key.
	approved map[string]holder
	held     map[string]string // UID → hostname
	limit    int
}

type holder struct{ uid, hostname string }

// replay goes through all revisions of the environment since the start and holds each to the invariant: no more approved
// control planes than the limit of that revision, each with a slot, and no two with one hostname.
func (w *world) replay(t *testing.T, start int64) replayed {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	end := w.revision(t)
	if _, err := w.Etcd.Put(ctx, w.Prefix+"-end", ""); err != nil { // so that the watch has something to end at
		t.Fatal(err)
	}
	state, seen := gateState{approved: map[string]holder{}, held: map[string]string{}}, replayed{}
	for response := range w.Etcd.Watch(ctx, w.Prefix, clientv3.WithPrefix(), clientv3.WithRev(start)) {
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range response.Events {
			if event.Kv.ModRevision > end {
				return seen
			}
			before := state.limit
			state.apply(t, strings.TrimPrefix(string(event.Kv.Key), w.Prefix), event)
			state.verify(t, event.Kv.ModRevision)
			seen.revisions++
			seen.lowered = seen.lowered || state.limit < before
			seen.approved, seen.held = max(seen.approved, len(state.approved)), max(seen.held, len(state.held))
		}
	}
	t.Fatal("the watch of etcd ended early")
	return seen
}

func (s *gateState) apply(t *testing.T, key string, event *clientv3.Event) {
	t.Helper()
	switch {
	case strings.HasPrefix(key, "/talosmachines/"):
		delete(s.approved, key)
		if event.Type == clientv3.EventTypeDelete {
			return
		}
		var m v1alpha1.TalosMachine
		if err := json.Unmarshal(event.Kv.Value, &m); err != nil {
			t.Fatal(err)
		}
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.Spec.Role == v1alpha1.RoleControlPlane {
			s.approved[key] = holder{string(m.UID), m.Spec.Hostname}
		}
	case strings.HasPrefix(key, "/talosclusters/"):
		var c v1alpha1.TalosCluster
		if err := json.Unmarshal(event.Kv.Value, &c); err != nil {
			t.Fatal(err)
		}
		clear(s.held)
		for _, slot := range c.Status.ControlPlaneSlots {
			s.held[string(slot.MachineUID)] = slot.Hostname
		}
		s.limit = int(c.Spec.ControlPlane.Count) + 1
	}
}

func (s *gateState) verify(t *testing.T, revision int64) {
	t.Helper()
	if s.limit > 0 && (len(s.approved) > s.limit || len(s.held) > s.limit) {
		t.Errorf("revision %d: %d control planes are approved, %d slots held, the limit is %d", revision, len(s.approved), len(s.held), s.limit)
	}
	hostnames := map[string]string{}
	for key, h := range s.approved {
		if hostname, holds := s.held[h.uid]; !holds || hostname != h.hostname {
			t.Errorf("revision %d: %s with UID %s is approved as %q; it holds a slot: %t, as %q", revision, key, h.uid, h.hostname, holds, hostname)
		}
		if other, taken := hostnames[h.hostname]; taken && h.hostname != "" {
			t.Errorf("revision %d: %s and %s have the hostname %s", revision, key, other, h.hostname)
		}
		hostnames[h.hostname] = key
	}
}
