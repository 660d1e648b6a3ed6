// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// registryStore is Store over the generic registry's storage, below strategies and admission: what it writes is decided
// by the protocol and by nobody's request.
type registryStore struct {
	clusters, machines *genericregistry.Store
	// version is what reads ask for: nothing, which is a quorum. Tests set another.
	version string
}

// NewRegistryStore returns a Store over the stores of the two kinds.
func NewRegistryStore(clusters, machines *genericregistry.Store) Store {
	return registryStore{clusters: clusters, machines: machines}
}

func (s registryStore) Cluster(ctx context.Context, name string) (*ichor.TalosCluster, error) {
	out := &ichor.TalosCluster{}
	return out, read(ctx, s.clusters, name, s.version, out)
}

func (s registryStore) Machine(ctx context.Context, name string) (*ichor.TalosMachine, error) {
	out := &ichor.TalosMachine{}
	return out, read(ctx, s.machines, name, s.version, out)
}

func (s registryStore) UpdateCluster(ctx context.Context, name string, change func(*ichor.TalosCluster) error) error {
	return update(ctx, s.clusters, name, &ichor.TalosCluster{}, change)
}

func (s registryStore) UpdateMachine(ctx context.Context, name string, change func(*ichor.TalosMachine) error) error {
	return update(ctx, s.machines, name, &ichor.TalosMachine{}, change)
}

// read gets an object without a resourceVersion, which is never answered from the watch cache.
// Source: k8s.io/apiserver, pkg/storage/cacher/delegator.go.
func read(ctx context.Context, store *genericregistry.Store, name, version string, out runtime.Object) error {
	key, err := store.KeyFunc(ctx, name)
	if err != nil {
		return err
	}
	if err := store.Storage.Get(ctx, key, storage.GetOptions{ResourceVersion: version}, out); err != nil {
		return storeerr.InterpretGetError(err, store.DefaultQualifiedResource, name)
	}
	return nil
}

func update[T runtime.Object](ctx context.Context, store *genericregistry.Store, name string, out T, change func(T) error) error {
	key, err := store.KeyFunc(ctx, name)
	if err != nil {
		return err
	}
	try := storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
		object := existing.(T)
		if err := change(object); err != nil {
			return nil, err
		}
		return object, nil
	})
	err = store.Storage.GuaranteedUpdate(ctx, key, out, false, nil, try, false, nil)
	return storeerr.InterpretUpdateError(err, store.DefaultQualifiedResource, name)
}
