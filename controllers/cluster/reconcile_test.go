// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ref = v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"}

// stack is a controller over an API that holds one cluster.
type stack struct {
	t          *testing.T
	api        *fake.Clientset
	store      secretsbundle.Store
	world      *talostest.World
	controller *Controller
	finalized  []string
	kube       *kubefake.Clientset
	sync       func()
}

func newStack(t *testing.T, change func(*v1alpha1.TalosCluster), machines ...*v1alpha1.TalosMachine) *stack {
	t.Helper()
	cluster := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "u", Finalizers: []string{v1alpha1.ClusterFinalizer}},
		Spec:       v1alpha1.TalosClusterSpec{SecretsRef: ref, ControlPlane: v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}}},
	}
	v1alpha1.SetDefaults_TalosClusterSpec(&cluster.Spec)
	if change != nil {
		change(cluster)
	}
	s := &stack{t: t, api: fake.NewSimpleClientset(cluster), world: talostest.NewWorld()}
	for _, m := range machines {
		if err := s.api.Tracker().Add(m); err != nil {
			t.Fatal(err)
		}
	}
	kubernetes := kubefake.NewClientset()
	s.kube = kubernetes
	s.store = secretsbundle.Store{Secrets: kubernetes.CoreV1()}
	factory := externalversions.NewSharedInformerFactory(s.api, 0)
	clusters, cached := factory.Ichor().V1alpha1().TalosClusters(), factory.Ichor().V1alpha1().TalosMachines()
	controller, err := New(Config{
		Client: s.api, Available: func(context.Context) error { return nil }, Machines: cached, Clusters: clusters, Store: s.store, Credentials: s, Dialer: s.world,
		Nodes: kubernetes.CoreV1(), Cordoner: drain.Drainer{Client: kubernetes},
		Recorder: record.NewFakeRecorder(100), Clock: clocktesting.NewFakeClock(time.Now()),
		Finalize: func(_ context.Context, c *v1alpha1.TalosCluster) error {
			s.finalized = append(s.finalized, fmt.Sprint(c.Finalizers))
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controller.queue.ShutDown)
	s.controller = controller
	s.sync = func() {
		s.t.Helper()
		for _, object := range []any{s.get()} {
			if err := clusters.Informer().GetIndexer().Add(object); err != nil {
				t.Fatal(err)
			}
		}
		list, err := s.api.IchorV1alpha1().TalosMachines().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if err := cached.Informer().GetIndexer().Add(&list.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func (s *stack) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	return talos.Credentials{}, nil
}

func (s *stack) get() *v1alpha1.TalosCluster {
	s.t.Helper()
	cluster, err := s.api.IchorV1alpha1().TalosClusters().Get(context.Background(), "prod", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return cluster
}

func (s *stack) reconcile() *v1alpha1.TalosCluster {
	s.t.Helper()
	s.sync()
	if _, err := s.controller.Reconcile(context.Background(), "prod"); err != nil {
		s.t.Fatal(err)
	}
	return s.get()
}

func newBundle(t *testing.T) *secretsbundle.Bundle {
	t.Helper()
	contract, err := machineconfig.Contract()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := secretsbundle.Generate(contract, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func machine(name string, role v1alpha1.MachineRole, state v1alpha1.ApprovalState, ready bool) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       v1alpha1.TalosMachineSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Role: role, ApprovalState: state, Hostname: name},
	}
	if ready {
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"}}
	}
	return m
}

func wantCondition(t *testing.T, c *v1alpha1.TalosCluster, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	condition := meta.FindStatusCondition(c.Status.Conditions, kind)
	if condition == nil || condition.Status != status || condition.Reason != reason {
		t.Fatalf("want condition %s=%s (%s), got %+v", kind, status, reason, condition)
	}
	for _, word := range words {
		if !strings.Contains(condition.Message, word) {
			t.Errorf("condition %s: want %q in %q", kind, word, condition.Message)
		}
	}
}

func TestTheSecretsBundle(t *testing.T) {
	t.Parallel()
	generate := func(c *v1alpha1.TalosCluster) { c.Spec.SecretsPolicy = v1alpha1.SecretsPolicyGenerate }
	t.Run("missing, and must be there", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, nil)
		wantCondition(t, s.reconcile(), v1alpha1.ConditionSecretsReady, metav1.ConditionFalse, v1alpha1.ReasonSecretsMissing, "ichor-system/prod-secrets", "nothing is applied")
	})
	t.Run("missing, and may be made: once", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, generate)
		made := s.reconcile()
		wantCondition(t, made, v1alpha1.ConditionSecretsReady, metav1.ConditionTrue, reasonSecretsGenerated)
		again := s.reconcile()
		if made.Status.SecretsBundleHash == "" || made.Status.SecretsBundleHash != again.Status.SecretsBundleHash {
			t.Errorf("hashes %q and %q", made.Status.SecretsBundleHash, again.Status.SecretsBundleHash)
		}
		wantCondition(t, again, v1alpha1.ConditionSecretsReady, metav1.ConditionTrue, reasonSecretsGenerated)
	})
	t.Run("missing, may be made, but a machine is approved", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, generate, machine("a", v1alpha1.RoleWorker, v1alpha1.ApprovalApproved, false))
		wantCondition(t, s.reconcile(), v1alpha1.ConditionSecretsReady, metav1.ConditionFalse, v1alpha1.ReasonSecretsMissing, "approved already (a)")
	})
	t.Run("gone after it was there: none is made in its place", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, func(c *v1alpha1.TalosCluster) { generate(c); c.Status.SecretsBundleHash = strings.Repeat("ab", 32) })
		wantCondition(t, s.reconcile(), v1alpha1.ConditionSecretsReady, metav1.ConditionFalse, v1alpha1.ReasonSecretsMissing, "had one")
		if _, err := s.store.Load(t.Context(), ref); err == nil {
			t.Error("a bundle was made")
		}
	})
	t.Run("another than the cluster was made with", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, func(c *v1alpha1.TalosCluster) { c.Status.SecretsBundleHash = strings.Repeat("ab", 32) })
		if err := s.store.Create(t.Context(), ref, "prod", newBundle(t)); err != nil {
			t.Fatal(err)
		}
		got := s.reconcile()
		wantCondition(t, got, v1alpha1.ConditionSecretsReady, metav1.ConditionFalse, reasonSecretsChanged)
		if got.Status.SecretsBundleHash != strings.Repeat("ab", 32) {
			t.Error("the hash was overwritten")
		}
	})
	t.Run("there, with the API server's etcd certificate renewed", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, nil)
		bundle := newBundle(t)
		if err := s.store.Create(t.Context(), ref, "prod", bundle); err != nil {
			t.Fatal(err)
		}
		old, err := s.store.EnsureEtcdClient(t.Context(), bundle, time.Now().Add(-300*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		wantCondition(t, s.reconcile(), v1alpha1.ConditionSecretsReady, metav1.ConditionTrue, reasonSecretsLoaded)
		renewed, err := s.store.EnsureEtcdClient(t.Context(), bundle, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if string(old.Certificate) == string(renewed.Certificate) {
			t.Error("the certificate was not renewed")
		}
	})
}

func TestCounts(t *testing.T) {
	t.Parallel()
	s := newStack(t, nil,
		machine("p1", "", v1alpha1.ApprovalPending, false), machine("p2", "", v1alpha1.ApprovalPending, false),
		machine("r", "", v1alpha1.ApprovalRejected, false),
		machine("c1", v1alpha1.RoleControlPlane, v1alpha1.ApprovalApproved, true), machine("c2", v1alpha1.RoleControlPlane, v1alpha1.ApprovalApproved, false),
		machine("w1", v1alpha1.RoleWorker, v1alpha1.ApprovalApproved, true), machine("w2", v1alpha1.RoleWorker, v1alpha1.ApprovalApproved, false),
	)
	got := s.reconcile()
	want := v1alpha1.MachineCounts{Pending: 2, Approved: 4, Rejected: 1, Ready: 2, Workers: 2, WorkersReady: 1}
	if diff := cmp.Diff(want, got.Status.Machines); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got.Status.ControlPlanes.Ready != 1 {
		t.Errorf("%d control planes are ready, want 1", got.Status.ControlPlanes.Ready)
	}
	wantCondition(t, got, v1alpha1.ConditionSurplusControlPlane, metav1.ConditionFalse, reasonAsWanted)
	s.api.ClearActions()
	s.reconcile()
	for _, action := range s.api.Actions() {
		if action.GetVerb() == "update" {
			t.Error("the same cluster was written again")
		}
	}
}

func TestASurplusControlPlaneIsNamed(t *testing.T) {
	t.Parallel()
	one := func(c *v1alpha1.TalosCluster) { c.Spec.ControlPlane.Count = 1 }
	old := machine("old", v1alpha1.RoleControlPlane, v1alpha1.ApprovalApproved, true)
	fresh := machine("fresh", v1alpha1.RoleControlPlane, v1alpha1.ApprovalApproved, true)
	fresh.CreationTimestamp = metav1.NewTime(time.Now())
	wantCondition(t, newStack(t, one, old, fresh).reconcile(), v1alpha1.ConditionSurplusControlPlane, metav1.ConditionTrue, reasonSurplus, "oldest is old")
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	members := []talos.EtcdMember{{ID: 0x1f, Hostname: "c1"}, {ID: 0x2f, Hostname: "c2"}, {ID: 0x3f, Hostname: "c3", Learner: true}}
	running := func(name, address string) *v1alpha1.TalosMachine {
		m := machine(name, v1alpha1.RoleControlPlane, v1alpha1.ApprovalApproved, true)
		m.Spec.Origin, m.Spec.Address = v1alpha1.MachineAdopted, address
		return m
	}
	node := func(members []talos.EtcdMember) *talostest.Machine {
		return talostest.NewMachine(talostest.State{Mode: talostest.Configured, Members: members})
	}
	t.Run("listed by the one that answers", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, nil, running("c1", "10.0.0.1"), running("c2", "10.0.0.2"))
		s.world.Put("10.0.0.2", node(members))
		got := s.reconcile()
		wantCondition(t, got, v1alpha1.ConditionEtcdHealthy, metav1.ConditionTrue, reasonQuorum, "1 of 2 voters answer", "no answer from c1")
		want := []v1alpha1.EtcdMember{{ID: "1f", Hostname: "c1", Machine: "c1"}, {ID: "2f", Hostname: "c2", Machine: "c2"}, {ID: "3f", Hostname: "c3", Learner: true}}
		if diff := cmp.Diff(want, got.Status.EtcdMembers); diff != "" {
			t.Errorf("members (-want +got):\n%s", diff)
		}
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, nil, running("c1", "10.0.0.1"))
		wantCondition(t, s.reconcile(), v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, reasonNoAnswer, "c1")
	})
	t.Run("nobody to ask", func(t *testing.T) {
		t.Parallel()
		wantCondition(t, newStack(t, nil).reconcile(), v1alpha1.ConditionEtcdHealthy, metav1.ConditionUnknown, reasonNoControlPlane)
	})
}

func TestAClusterIsLetGoWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	deleting := func(c *v1alpha1.TalosCluster) { now := metav1.Now(); c.DeletionTimestamp = &now }
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.TalosCluster)
		machines []*v1alpha1.TalosMachine
		want     []string
	}{
		"nothing is left":       {change: deleting, machines: []*v1alpha1.TalosMachine{machine("p", "", v1alpha1.ApprovalPending, false)}, want: []string{"[]"}},
		"a machine is approved": {change: deleting, machines: []*v1alpha1.TalosMachine{machine("w", v1alpha1.RoleWorker, v1alpha1.ApprovalApproved, true)}},
		"a slot is held": {change: func(c *v1alpha1.TalosCluster) {
			deleting(c)
			c.Status.ControlPlaneSlots = []v1alpha1.ControlPlaneSlot{{Name: "c"}}
		}},
		"it isn't deleted at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, tc.change, tc.machines...)
			s.reconcile()
			if diff := cmp.Diff(tc.want, s.finalized); diff != "" {
				t.Errorf("finalizers written (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAPIThatFailsEachTimeAnewIsWrittenOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t, nil)
	port := 40000
	s.controller.Available = func(context.Context) error {
		port++
		return fmt.Errorf("Get \"https://10.0.0.10:6443/readyz\": read tcp 10.0.0.9:%d->10.0.0.10:6443: read: connection reset by peer", port)
	}
	first := s.reconcile()
	wantCondition(t, first, v1alpha1.ConditionAvailable, metav1.ConditionFalse, reasonUnavailable, "10.0.0.10:6443: read: connection reset")
	s.api.ClearActions()
	s.reconcile()
	for _, action := range s.api.Actions() {
		if action.GetVerb() == "update" {
			t.Errorf("the same cause was written again: %v", action)
		}
	}
	changed := first.DeepCopy()
	changed.ResourceVersion = "next"
	set(changed, v1alpha1.ConditionAvailable, metav1.ConditionFalse, reasonUnavailable, "other words")
	if !onlyConditions(first, changed) {
		t.Error("other words in a condition are taken for a change to act on")
	}
	changed.Status.Machines.Approved++
	if onlyConditions(first, changed) {
		t.Error("a change besides conditions is taken for none")
	}
}
