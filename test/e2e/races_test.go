// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/localstack"
)

// oneHostname approves two control planes with one hostname at the same moment.
func oneHostname(t *testing.T, s *suite) {
	all := s.take(t, 2)
	s.hold(t, names(all)...)
	won, lost := s.race(t, all, []*versioned.Clientset{s.operator}, func(int) string { return "cp-twin" })
	if len(won) != 1 || len(lost) != 1 {
		t.Fatalf("%d approvals won and %d lost, want one of each: %v", len(won), len(lost), lost)
	}
	if err := lost[0]; !strings.Contains(err.Error(), "cp-twin") || apierrors.IsInternalError(err) {
		t.Errorf("the loser was told %v, want the hostname named", err)
	}
	twins := 0
	for _, slot := range s.cluster(t).Status.ControlPlaneSlots {
		if slot.Hostname == "cp-twin" {
			twins++
		}
	}
	if twins != 1 {
		t.Errorf("%d slots have the hostname, want 1", twins)
	}
}

// parallelApprovals sends every approval to each of three API servers at the same moment. It needs two free slots.
func parallelApprovals(t *testing.T, s *suite) {
	const contenders, free = 5, 2
	held := len(s.cluster(t).Status.ControlPlaneSlots)
	count := held + free - 1
	patch := []byte(`{"spec":{"controlPlane":{"count":` + strconv.Itoa(count) + `}}}`)
	if _, err := s.operator.IchorV1alpha1().TalosClusters().Patch(t.Context(), localstack.ClusterName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	all := s.take(t, contenders)
	s.hold(t, names(all)...)
	var servers []*versioned.Clientset
	for n := range s.stack.Replicas() {
		servers = append(servers, client(t, s.stack.Direct(person(t, s.stack, "operator"), n)))
	}
	_, lost := s.race(t, all, servers, func(i int) string { return "cp-race-" + strconv.Itoa(i) })

	approved := 0
	for _, m := range all {
		if s.get(t, m.Name).Spec.ApprovalState == v1alpha1.ApprovalApproved {
			approved++
		}
	}
	cluster := s.cluster(t)
	if approved != free || len(cluster.Status.ControlPlaneSlots) != count+1 {
		t.Errorf("%d of %d were approved and %d slots are held, want %d and %d", approved, contenders, len(cluster.Status.ControlPlaneSlots), free, count+1)
	}
	full := 0
	for _, err := range lost {
		// Two servers may approve one machine; the later one is told that it moved on.
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), strconv.Itoa(count+1)) && strings.Contains(err.Error(), "cp-1") {
			full++
		} else if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("refused with %v", err)
		}
	}
	if full == 0 {
		t.Errorf("no refusal names the limit %d and who holds the slots: %v", count+1, lost)
	}
}

// race approves all machines through all clients at the same moment and returns the names of those that were approved
// and the errors of the others.
func (s *suite) race(t *testing.T, all []*v1alpha1.TalosMachine, clients []*versioned.Clientset, hostname func(int) string) (won []string, lost []error) {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	start := make(chan struct{})
	for i, m := range all {
		decided := s.decided(t, s.get(t, m.Name), v1alpha1.RoleControlPlane, hostname(i))
		for _, c := range clients {
			group.Go(func() {
				<-start
				err := patchApproval(t.Context(), c, decided)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					lost = append(lost, err)
				} else {
					won = append(won, m.Name)
				}
			})
		}
	}
	close(start)
	group.Wait()
	return won, lost
}
