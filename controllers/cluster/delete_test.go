// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	approved = v1alpha1.ApprovalApproved
	waiting  = v1alpha1.ApprovalPending
	cp       = v1alpha1.RoleControlPlane
	worker   = v1alpha1.RoleWorker
)

// deletedWith is a cluster that is being deleted by a policy.
func deletedWith(policy v1alpha1.ClusterDeletionPolicy) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) {
		now := metav1.Now()
		c.DeletionTimestamp, c.Spec.DeletionPolicy = &now, policy
	}
}

// approvedOn gives a machine the time of its approval.
func approvedOn(m *v1alpha1.TalosMachine, day int) *v1alpha1.TalosMachine {
	at := metav1.NewTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC))
	m.Spec.Approval = &v1alpha1.MachineApproval{At: &at}
	return m
}

// holdsDeleted marks machines as being deleted, as the API does while they have their finalizer, and says which were asked for.
func (s *stack) holdsDeleted() *[]string {
	var asked []string
	s.api.PrependReactor("delete", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.DeleteAction).GetName()
		asked = append(asked, name)
		object, err := s.api.Tracker().Get(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), "", name)
		if err != nil {
			return true, nil, err
		}
		m, now := object.(*v1alpha1.TalosMachine), metav1.Now()
		m.DeletionTimestamp = &now
		return true, nil, s.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), m, "")
	})
	return &asked
}

// gone ends a machine's object, and gives its slot back.
func (s *stack) gone(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if err := s.api.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), "", name); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *stack) deleting() metav1.Condition {
	s.t.Helper()
	condition := meta.FindStatusCondition(s.get().Status.Conditions, v1alpha1.ConditionDeleting)
	if condition == nil {
		s.t.Fatal("the cluster doesn't say that it is being deleted")
	}
	return *condition
}

func TestAClusterIsDestroyedWorkersFirstAndThenControlPlanesOneByOne(t *testing.T) {
	t.Parallel()
	s := newStack(t, deletedWith(v1alpha1.ClusterDeletionDestroy),
		approvedOn(machine("cp-1", cp, approved, true), 1), approvedOn(machine("cp-2", cp, approved, true), 2), approvedOn(machine("cp-3", cp, approved, false), 3),
		machine("w-1", worker, approved, true), machine("w-2", worker, approved, true), machine("x", worker, waiting, false))
	asked := s.holdsDeleted()
	for _, step := range []struct {
		asks   []string
		reason string
		says   string
		then   []string
	}{
		{[]string{"w-1", "w-2", "x"}, reasonWorkersGo, "3 workers are wiped, and then 3 control planes", []string{"w-1", "x"}},
		{nil, reasonWorkersGo, "1 workers", []string{"w-2"}},
		{[]string{"cp-3"}, reasonControlPlanesGo, "3 control planes", nil}, // it isn't Ready
		{nil, reasonControlPlanesGo, "one by one", []string{"cp-3"}},
		{[]string{"cp-2"}, reasonControlPlanesGo, "2 control planes", []string{"cp-2"}}, // it was approved after cp-1
		{[]string{"cp-1"}, reasonLastGoes, "cp-1 is the last machine", []string{"cp-1"}},
	} {
		*asked = nil
		s.reconcile()
		if diff := cmp.Diff(step.asks, *asked); diff != "" {
			t.Fatalf("deleted (-want +got):\n%s", diff)
		}
		if got := s.deleting(); got.Reason != step.reason || !strings.Contains(got.Message, step.says) {
			t.Errorf("the cluster says %s: %s", got.Reason, got.Message)
		}
		if len(s.finalized) != 0 {
			t.Fatal("the cluster was let go")
		}
		s.gone(step.then...)
	}
	s.reconcile()
	if !slices.Equal(s.finalized, []string{"[]"}) {
		t.Errorf("finalized: %v", s.finalized)
	}
}

func TestNoPolicyThatIsntSpelledOutTakesMachinesAlong(t *testing.T) {
	t.Parallel()
	for _, policy := range []v1alpha1.ClusterDeletionPolicy{"", v1alpha1.ClusterDeletionRefuse, "Later"} {
		s := newStack(t, deletedWith(policy), machine("w-1", worker, approved, true))
		asked := s.holdsDeleted()
		s.reconcile() // whether the cluster may go is the API server's to say
		if len(*asked) > 0 {
			t.Errorf("with the policy %q machines are deleted: %v", policy, *asked)
		}
	}
}

func TestThatTheLastControlPlaneGoesIsSaidBeforeItDoes(t *testing.T) {
	t.Parallel()
	s := newStack(t, deletedWith(v1alpha1.ClusterDeletionDestroy), machine("cp-1", cp, approved, true))
	said := ""
	s.api.PrependReactor("delete", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) {
		object, err := s.api.Tracker().Get(v1alpha1.SchemeGroupVersion.WithResource("talosclusters"), "", "prod")
		if err != nil {
			return true, nil, err
		}
		said = meta.FindStatusCondition(object.(*v1alpha1.TalosCluster).Status.Conditions, v1alpha1.ConditionDeleting).Reason
		return true, nil, apierrors.NewForbidden(v1alpha1.SchemeGroupVersion.WithResource("talosmachines").GroupResource(), "cp-1", nil)
	})
	s.sync()
	if _, err := s.controller.Reconcile(context.Background(), "prod"); err == nil || said != reasonLastGoes {
		t.Errorf("said %q; %v", said, err)
	}
}

func TestAClusterIsLetGoWithAllItsMachinesAtOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t, deletedWith(v1alpha1.ClusterDeletionOrphan), machine("cp-1", cp, approved, true), machine("w-1", worker, approved, true), machine("x", worker, waiting, false))
	asked := s.holdsDeleted()
	s.reconcile()
	if diff := cmp.Diff([]string{"cp-1", "w-1", "x"}, *asked); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if got := s.deleting(); got.Reason != reasonLettingGo || len(s.finalized) != 0 {
		t.Errorf("the cluster says %s; finalized: %v", got.Reason, s.finalized)
	}
	s.gone("cp-1", "w-1", "x")
	s.reconcile()
	if len(s.finalized) != 1 {
		t.Error("the cluster is still held")
	}
}

// quarantinedMachine is cp-9, which anna gave up.
func quarantinedMachine(c *v1alpha1.TalosCluster) {
	c.Status.Quarantined = []v1alpha1.QuarantinedMachine{{
		MachineUID: "old", Name: "cp-9", NodeName: "node-9", Identity: v1alpha1.MachineIdentity{UUID: uuidOf(9), SerialNumber: "S9", MACAddresses: []string{"02:00:5e:00:53:09"}},
		By: "anna", At: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}}
}

func uuidOf(n int) string { return "4c4c4544-0051-3610-8052-b4c04f4c000" + string(rune('0'+n)) }

func (s *stack) node9(change func(*corev1.Node)) {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9", UID: "n", CreationTimestamp: metav1.Now()}}
	node.Status.NodeInfo.SystemUUID = strings.ToUpper(uuidOf(9))
	if change != nil {
		change(node)
	}
	if _, err := s.kube.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) isCordoned() bool {
	s.t.Helper()
	node, err := s.kube.CoreV1().Nodes().Get(context.Background(), "node-9", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return node.Spec.Unschedulable
}

func TestAQuarantinedMachineThatComesBackIsToldOfAndGetsNoPods(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]func(*corev1.Node){
		"as Talos says who it is": nil,
		"as the kernel does, of old firmware": func(n *corev1.Node) {
			n.Status.NodeInfo.SystemUUID = "44454c4c-5100-1036-8052-b4c04f4c0009"
		},
		"a kubelet that says nothing of that": func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, quarantinedMachine)
			wantCondition(t, s.reconcile(), v1alpha1.ConditionMachinesQuarantined, metav1.ConditionFalse, reasonAway, "none was seen since")
			s.node9(node)
			wantCondition(t, s.reconcile(), v1alpha1.ConditionMachinesQuarantined, metav1.ConditionTrue, reasonCameBack, "cp-9", "anna", "node-9", "cordoned")
			if !s.isCordoned() {
				t.Error("its Node takes pods")
			}
		})
	}
}

func TestAnotherMachinesNodeIsNotTakenForAQuarantinedOnes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node  func(*corev1.Node)
		other *v1alpha1.TalosMachine
	}{
		"another board has the name": {node: func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = uuidOf(1) }},
		"a machine was approved with the name": {other: func() *v1alpha1.TalosMachine {
			m := machine("new", worker, approved, true)
			m.Spec.Hostname = "node-9"
			return m
		}()},
		"it is the Node that is being deleted": {node: func(n *corev1.Node) {
			n.CreationTimestamp = metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var others []*v1alpha1.TalosMachine
			if tc.other != nil {
				others = append(others, tc.other)
			}
			s := newStack(t, quarantinedMachine, others...)
			s.node9(tc.node)
			s.reconcile()
			if s.isCordoned() {
				t.Error("the Node was cordoned")
			}
		})
	}
}

func TestAQuarantineEndsWhenAPersonApprovesTheMachine(t *testing.T) {
	t.Parallel()
	again := machine("again", worker, waiting, false)
	again.Spec.Identity = v1alpha1.MachineIdentity{UUID: uuidOf(9), SerialNumber: "S9", MACAddresses: []string{"02:00:5e:00:53:09"}}
	again.Status.NodeName = "node-9"
	s := newStack(t, quarantinedMachine, again)
	s.node9(nil)
	if cluster := s.reconcile(); len(cluster.Status.Quarantined) != 1 {
		t.Fatal("the quarantine ended before anybody approved it")
	}
	again.Spec.ApprovalState = approved
	if err := s.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), again, ""); err != nil {
		t.Fatal(err)
	}
	cluster := s.reconcile()
	if meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionMachinesQuarantined) != nil || len(cluster.Status.Quarantined) != 0 || s.isCordoned() {
		t.Errorf("still quarantined: %v, cordoned: %v", cluster.Status.Quarantined, s.isCordoned())
	}
}

func TestTheMachineThatWasGivenUpDoesntEndItsOwnQuarantine(t *testing.T) {
	t.Parallel()
	old := machine("cp-9", cp, approved, false)
	old.UID = types.UID("old")
	old.Spec.Identity = v1alpha1.MachineIdentity{UUID: uuidOf(9), SerialNumber: "S9", MACAddresses: []string{"02:00:5e:00:53:09"}}
	s := newStack(t, quarantinedMachine, old)
	if cluster := s.reconcile(); len(cluster.Status.Quarantined) != 1 {
		t.Error("the quarantine ended with the object that it was for")
	}
}
