// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var (
	clusters = schema.GroupVersionResource{Group: "ceph.rook.io", Version: "v1", Resource: "cephclusters"}
	pools    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pools"}
)

func ceph(health string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": map[string]any{"namespace": "rook-ceph", "name": "rook-ceph"},
		"status": map[string]any{"ceph": map[string]any{"health": health}},
	}}
}

func pool() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Pool", "metadata": map[string]any{"name": "one"}, "ready": true,
	}}
}

// objects is a cluster with kinds of others.
func objects(t *testing.T, there ...runtime.Object) (Checker, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	kube := kubefake.NewClientset()
	kube.Fake.Resources = []*metav1.APIResourceList{
		{GroupVersion: "ceph.rook.io/v1", APIResources: []metav1.APIResource{
			{Name: "cephclusters/status", Kind: "CephCluster", Namespaced: true},
			{Name: "cephclusters", Kind: "CephCluster", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}},
			{Name: "reviews", Kind: "Review", Verbs: metav1.Verbs{"create"}},
		}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "pools", Kind: "Pool", Verbs: metav1.Verbs{"get"}}}},
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		clusters: "CephClusterList", pools: "PoolList",
	}, there...)
	return Checker{Kubernetes: kube, Objects: dynamic}, dynamic
}

func cephGate(change func(*v1alpha1.CELGate)) v1alpha1.OperationGate {
	gate := &v1alpha1.CELGate{
		APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Namespace: "rook-ceph", Name: "rook-ceph",
		Expression: "object.status.ceph.health == 'HEALTH_OK'",
	}
	if change != nil {
		change(gate)
	}
	return v1alpha1.OperationGate{Name: "ceph", CEL: gate}
}

var occasion = Occasion{Operation: "upgrade", UID: "0b1c", Machine: "4c4c4544-0051", Attempt: 0}

func TestGatesOverObjects(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		there []runtime.Object
		gate  v1alpha1.OperationGate
		state State
		says  []string
	}{
		"it holds":               {there: []runtime.Object{ceph("HEALTH_OK")}, gate: cephGate(nil), state: Opened},
		"it doesn't hold":        {there: []runtime.Object{ceph("HEALTH_WARN")}, gate: cephGate(nil), state: Waiting, says: []string{"gate ceph", "isn't true", "rook-ceph/rook-ceph"}},
		"the object isn't there": {gate: cephGate(nil), state: Waiting, says: []string{"there is no CephCluster rook-ceph/rook-ceph"}},
		"an object of no namespace": {
			there: []runtime.Object{pool()}, state: Opened, gate: cephGate(func(g *v1alpha1.CELGate) {
				*g = v1alpha1.CELGate{APIVersion: "example.com/v1", Kind: "Pool", Name: "one", Expression: "object.ready"}
			}),
		},
		"a field that isn't there yet": {
			there: []runtime.Object{ceph("HEALTH_OK")}, state: Waiting, says: []string{`no field "phase"`},
			gate: cephGate(func(g *v1alpha1.CELGate) { g.Expression = "object.status.phase == 'Ready'" }),
		},
		"no boolean": {
			there: []runtime.Object{ceph("HEALTH_OK")}, state: Refused, says: []string{"of type string"},
			gate: cephGate(func(g *v1alpha1.CELGate) { g.Expression = "object.status.ceph.health" }),
		},
		"no expression at all": {
			state: Refused, says: []string{"can't be used"}, gate: cephGate(func(g *v1alpha1.CELGate) { g.Expression = "object." }),
		},
		"an API that isn't installed": {
			state: Waiting, says: []string{"no API longhorn.io/v1beta2"}, gate: cephGate(func(g *v1alpha1.CELGate) { g.APIVersion = "longhorn.io/v1beta2" }),
		},
		"a kind that isn't there": {
			state: Waiting, says: []string{"no kind CephBlockPool"}, gate: cephGate(func(g *v1alpha1.CELGate) { g.Kind = "CephBlockPool" }),
		},
		"a kind that nobody can read": {state: Waiting, says: []string{"no kind Review"}, gate: cephGate(func(g *v1alpha1.CELGate) { g.Kind = "Review" })},
		"no namespace":                {state: Refused, says: []string{"belongs to a namespace"}, gate: cephGate(func(g *v1alpha1.CELGate) { g.Namespace = "" })},
		"a namespace too much": {
			state: Refused, says: []string{"belongs to no namespace"},
			gate: cephGate(func(g *v1alpha1.CELGate) { g.APIVersion, g.Kind = "example.com/v1", "Pool" }),
		},
		"neither": {state: Refused, says: []string{"neither cel nor job"}, gate: v1alpha1.OperationGate{Name: "empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker, _ := objects(t, tc.there...)
			got, err := checker.Check(t.Context(), tc.gate, occasion)
			if err != nil || got.State != tc.state || (got.Message == "") != (tc.state == Opened) {
				t.Errorf("want %s, got %+v %v", tc.state, got, err)
			}
			for _, part := range tc.says {
				if !strings.Contains(got.Message, part) {
					t.Errorf("%q isn't in %q", part, got.Message)
				}
			}
		})
	}
}

func TestAnObjectThatTheControllerMayNotReadNamesTheRule(t *testing.T) {
	t.Parallel()
	checker, dynamic := objects(t, ceph("HEALTH_OK"))
	dynamic.PrependReactor("get", "cephclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(clusters.GroupResource(), "rook-ceph", errors.New("no"))
	})
	got, err := checker.Check(t.Context(), cephGate(nil), occasion)
	if err != nil || got.State != Waiting {
		t.Fatalf("want waiting, got %+v %v", got, err)
	}
	for _, part := range []string{"cephclusters.ceph.rook.io", `apiGroups ["ceph.rook.io"]`, "resources [cephclusters]", "verbs [get]", GatesRoleLabel + "=true"} {
		if !strings.Contains(got.Message, part) {
			t.Errorf("%q isn't in %q", part, got.Message)
		}
	}
}

func TestAKindIsFoundOnceItsDefinitionIsInstalled(t *testing.T) {
	t.Parallel()
	checker, _ := objects(t, ceph("HEALTH_OK"))
	kube := checker.Kubernetes.(*kubefake.Clientset)
	all := kube.Fake.Resources
	kube.Fake.Resources = nil
	if got, err := checker.Check(t.Context(), cephGate(nil), occasion); err != nil || got.State != Waiting {
		t.Errorf("before: %+v %v", got, err)
	}
	kube.Fake.Resources = all
	if got, err := checker.Check(t.Context(), cephGate(nil), occasion); err != nil || got.State != Opened {
		t.Errorf("after: %+v %v", got, err)
	}
}

func TestAnAPIThatIsAwayIsAnErrorAndNoAnswer(t *testing.T) {
	t.Parallel()
	for name, break_ := range map[string]func(Checker, *dynamicfake.FakeDynamicClient){
		"when asked for kinds": func(c Checker, _ *dynamicfake.FakeDynamicClient) {
			c.Kubernetes.(*kubefake.Clientset).PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("away")
			})
		},
		"when asked for the object": func(_ Checker, d *dynamicfake.FakeDynamicClient) {
			d.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("away")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker, dynamic := objects(t, ceph("HEALTH_OK"))
			break_(checker, dynamic)
			if got, err := checker.Check(t.Context(), cephGate(nil), occasion); err == nil || !strings.Contains(err.Error(), "gate ceph") {
				t.Errorf("got %+v %v", got, err)
			}
		})
	}
}
