// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	registrytest "k8s.io/apiserver/pkg/registry/generic/testing"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/talosclusters"
	"maesh.dev/ichor/registry/talosmachines"
	"maesh.dev/ichor/test/apiserver/harness"
)

// nameFor is a name that any machine without an identity may have.
func nameFor(n int) string { return fmt.Sprintf("weak-%020x", n) }

func internalMachine() *ichor.TalosMachine {
	m := &ichor.TalosMachine{}
	m.Name = nameFor(1)
	m.Spec = ichor.TalosMachineSpec{
		ClusterRef: ichor.ClusterReference{Name: "prod"}, Origin: ichor.MachineDiscovered, ApprovalState: ichor.ApprovalPending, DeletionPolicy: ichor.DeletionReset,
	}
	return m
}

func internalCluster(t *testing.T) *ichor.TalosCluster {
	t.Helper()
	versioned := cluster(3)
	apiserver.Scheme.Default(versioned)
	internal, err := apiserver.Scheme.ConvertToVersion(versioned, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	return internal.(*ichor.TalosCluster)
}

// TestStoresBehaveAsGenericOnes runs the library's own tests of a store. Finalizers are put aside: with them a deletion
// waits for the controller, and the library's tests for none.
func TestStoresBehaveAsGenericOnes(t *testing.T) {
	t.Parallel()
	invalidMachine, invalidCluster := internalMachine(), internalCluster(t)
	invalidMachine.Spec.Origin, invalidCluster.Spec.ControlPlane.Count = "Stolen", 0
	for _, kind := range []struct {
		name             string
		store            func(runtime.ObjectTyper, generic.RESTOptionsGetter) (*genericregistry.Store, error)
		namer            func(int) string
		valid, invalid   runtime.Object
		change, wrong    func(runtime.Object) runtime.Object
		selected, others []fields.Set
	}{
		{
			"talosmachines", talosmachines.NewStore, nameFor, internalMachine(), invalidMachine,
			func(o runtime.Object) runtime.Object { o.(*ichor.TalosMachine).Spec.Locked = true; return o },
			func(o runtime.Object) runtime.Object { o.(*ichor.TalosMachine).Spec.DeletionPolicy = "Burn"; return o },
			[]fields.Set{{"metadata.name": nameFor(1)}, {"spec.approvalState": "pending"}}, []fields.Set{{"metadata.name": "x"}, {"spec.role": "worker"}},
		},
		{
			"talosclusters", talosclusters.NewStore, func(n int) string { return fmt.Sprintf("prod-%d", n) }, internalCluster(t), invalidCluster,
			func(o runtime.Object) runtime.Object { o.(*ichor.TalosCluster).Spec.ControlPlane.Count = 5; return o },
			func(o runtime.Object) runtime.Object { o.(*ichor.TalosCluster).Spec.TalosVersion = "x"; return o },
			[]fields.Set{{"metadata.name": "prod"}}, []fields.Set{{"metadata.name": "x"}},
		},
	} {
		for name, test := range map[string]func(*registrytest.Tester){
			"create": func(r *registrytest.Tester) { r.TestCreate(kind.valid.DeepCopyObject(), kind.invalid.DeepCopyObject()) },
			"update": func(r *registrytest.Tester) { r.TestUpdate(kind.valid.DeepCopyObject(), kind.change, kind.wrong) },
			"delete": func(r *registrytest.Tester) { r.TestDelete(kind.valid.DeepCopyObject()) },
			"get":    func(r *registrytest.Tester) { r.TestGet(kind.valid.DeepCopyObject()) },
			"list":   func(r *registrytest.Tester) { r.TestList(kind.valid.DeepCopyObject()) },
			"watch": func(r *registrytest.Tester) {
				r.TestWatch(kind.valid.DeepCopyObject(), nil, []labels.Set{{"a": "b"}}, kind.selected, kind.others)
			},
		} {
			t.Run(kind.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				store, err := kind.store(apiserver.Scheme, harness.RESTOptions(t))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(store.Destroy)
				store.CreateStrategy = withoutFinalizers{store.CreateStrategy}
				test(registrytest.New(t, store).ClusterScope().Namer(kind.namer).GeneratesName().ReturnDeletedObject())
			})
		}
	}
}

// withoutFinalizers creates as the strategy within, and leaves no finalizer.
type withoutFinalizers struct{ rest.RESTCreateStrategy }

// PrepareForCreate takes the finalizers away again.
func (s withoutFinalizers) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.RESTCreateStrategy.PrepareForCreate(ctx, obj)
	if object, err := meta.Accessor(obj); err == nil {
		object.SetFinalizers(nil)
	}
}
