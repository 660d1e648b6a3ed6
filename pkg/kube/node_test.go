// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func node(name, address string, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}},
			Conditions: conditions,
		},
	}
}

func TestTheNodeOfAMachine(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, each := range []*corev1.Node{node("a", "10.0.0.1"), node("b", "10.0.0.2")} {
		if err := indexer.Add(each); err != nil {
			t.Fatal(err)
		}
	}
	nodes := Nodes{Lister: corev1listers.NewNodeLister(indexer)}
	for name, tc := range map[string]struct {
		node      string
		addresses []string
		want      string
	}{
		"by its name":                     {node: "a", want: "a"},
		"by its address":                  {addresses: []string{"10.9.9.9", "10.0.0.2"}, want: "b"},
		"not there yet":                   {node: "c"},
		"a name decides, not the address": {node: "c", addresses: []string{"10.0.0.1"}},
		"nothing known":                   {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := nodes.ForMachine(tc.node, tc.addresses)
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			if got != nil {
				found = got.Name
			}
			if diff := cmp.Diff(tc.want, found); diff != "" {
				t.Errorf("Node (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodeReady(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		ready      bool
		why        string
	}{
		"ready":       {conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, ready: true},
		"not ready":   {conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "no CNI"}}, why: "Node a is not ready: no CNI"},
		"says nought": {why: "Node a has not said yet whether it is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready, why := NodeReady(node("a", "10.0.0.1", tc.conditions...))
			if ready != tc.ready || why != tc.why {
				t.Errorf("want %v %q, got %v %q", tc.ready, tc.why, ready, why)
			}
		})
	}
}

func TestWhatOfANodeConcernsItsMachine(t *testing.T) {
	t.Parallel()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		same   bool
	}{
		"a heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		"its images":  {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"etcd"}}} }, true},
		"a taint":     {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/not-ready"}} }, true},
		"not ready":   {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"an address":  {func(n *corev1.Node) { n.Status.Addresses[1].Address = "10.0.0.2" }, false},
		"made anew":   {func(n *corev1.Node) { n.UID = "another" }, false},
		"going":       {func(n *corev1.Node) { now := metav1.Now(); n.DeletionTimestamp = &now }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was := node("a", "10.0.0.1", ready)
			is := was.DeepCopy()
			tc.change(is)
			if got := SameMachine(was, is); got != tc.same {
				t.Errorf("same machine: want %v, got %v", tc.same, got)
			}
			trimmed, err := TrimNode(is)
			if err != nil {
				t.Fatal(err)
			}
			if !SameMachine(is, trimmed.(*corev1.Node)) {
				t.Errorf("the trimmed Node says something else of its machine: %+v", trimmed)
			}
		})
	}
}

func TestANodeIsDeletedOnce(t *testing.T) {
	t.Parallel()
	gone := node("a", "10.0.0.1")
	client := fake.NewClientset(gone)
	nodes := Nodes{Client: client.CoreV1()}
	for range 2 {
		if err := nodes.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsNotReady(t *testing.T) {
	t.Parallel()
	text := "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\nreadyz check failed\n"
	if diff := cmp.Diff([]string{"etcd", "poststarthook/rbac/bootstrap-roles"}, failedChecks(text)); diff != "" {
		t.Errorf("failed checks (-want +got):\n%s", diff)
	}
}
