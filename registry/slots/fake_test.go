// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"context"
	"errors"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/slots"
)

// fakeStore keeps objects in memory with the guarantees of the real one: quorum reads, and compare-and-swap on one key.
// Before each access it asks its turn, so that a test decides who goes next; between the read and the write of an
// update it asks again, so that others can come in between.
type fakeStore struct {
	mu       sync.Mutex
	clusters map[string]*ichor.TalosCluster
	machines map[string]*ichor.TalosMachine
	version  int
	// turn is called before each access; an error ends the caller as a crash does.
	turn func() error
	// check is called after each write, with the lock held.
	check func(*fakeStore)
}

var _ slots.Store = &fakeStore{}

func newFakeStore() *fakeStore {
	return &fakeStore{clusters: map[string]*ichor.TalosCluster{}, machines: map[string]*ichor.TalosMachine{}}
}

func (f *fakeStore) next() string {
	f.version++
	return strconv.Itoa(f.version)
}

func (f *fakeStore) addCluster(name string, count int32) *ichor.TalosCluster {
	c := &ichor.TalosCluster{}
	c.Name, c.UID, c.ResourceVersion = name, types.UID("uid-of-"+name), f.next()
	c.Spec.ControlPlane.Count = count
	f.clusters[name] = c
	return c
}

func (f *fakeStore) addMachine(name, cluster string) *ichor.TalosMachine {
	m := &ichor.TalosMachine{}
	m.Name, m.UID, m.ResourceVersion = name, types.UID("uid-of-"+name), f.next()
	m.Spec.ClusterRef.Name, m.Spec.ApprovalState = cluster, ichor.ApprovalPending
	f.machines[name] = m
	return m
}

func (f *fakeStore) wait() error {
	if f.turn == nil {
		return nil
	}
	return f.turn()
}

func (f *fakeStore) written() {
	if f.check != nil {
		f.check(f)
	}
}

func (f *fakeStore) Cluster(_ context.Context, name string) (*ichor.TalosCluster, error) {
	if err := f.wait(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clusters[name]; c != nil {
		return c.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(ichor.Resource("talosclusters"), name)
}

func (f *fakeStore) Machine(_ context.Context, name string) (*ichor.TalosMachine, error) {
	if err := f.wait(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[name]; m != nil {
		return m.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(ichor.Resource("talosmachines"), name)
}

// UpdateCluster is one step: compare-and-swap tries again until it hits, which is the same as nobody in between.
func (f *fakeStore) UpdateCluster(_ context.Context, name string, change func(*ichor.TalosCluster) error) error {
	if err := f.wait(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	current := f.clusters[name]
	if current == nil {
		return apierrors.NewNotFound(ichor.Resource("talosclusters"), name)
	}
	changed := current.DeepCopy()
	if err := change(changed); err != nil {
		return err
	}
	changed.ResourceVersion = f.next()
	f.clusters[name] = changed
	f.written()
	return nil
}

func (f *fakeStore) UpdateMachine(_ context.Context, name string, change func(*ichor.TalosMachine) error) error {
	if err := f.wait(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	current := f.machines[name]
	if current == nil {
		return apierrors.NewNotFound(ichor.Resource("talosmachines"), name)
	}
	changed := current.DeepCopy()
	if err := change(changed); err != nil {
		return err
	}
	changed.ResourceVersion = f.next()
	f.machines[name] = changed
	f.written()
	return nil
}

// approve is what talosmachines/approval does, on the fake store.
func approve(ctx context.Context, f *fakeStore, gate *slots.Gate, name, hostname string, attempts int) error {
	for attempt := 1; ; attempt++ {
		was, err := f.Machine(ctx, name)
		if err != nil {
			return err
		}
		if was.Spec.ApprovalState == ichor.ApprovalApproved {
			return nil
		}
		try, asked := gate.Attempt(was), was.DeepCopy()
		asked.Spec.ApprovalState, asked.Spec.Role, asked.Spec.Hostname = ichor.ApprovalApproved, ichor.RoleControlPlane, hostname
		if err := try.Claim(ctx, asked, false); err != nil {
			return err
		}
		err = f.UpdateMachine(ctx, name, func(m *ichor.TalosMachine) error {
			if err := try.Fence(m); err != nil {
				return err
			}
			m.Spec = asked.Spec
			return nil
		})
		if !errors.Is(err, slots.ErrMachineMoved) || attempt == attempts {
			return err
		}
	}
}
