// SPDX-License-Identifier: Apache-2.0

// Package cosi is the resource state of a hollow node: the real COSI runtime with every type that Talos registers, the
// access policy of Talos' API, and a small writer. It lives as long as one boot; versions start again at 1 with the next.
package cosi

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"

	"maesh.dev/ichor/test/hollow/profile"
)

// namespaces of a Talos node (Talos: internal/app/machined/pkg/runtime/v1alpha2/v1alpha2_state.go).
var namespaces = []string{
	"cluster", "cluster-raw", "config", "controlplane", "cri", "etcd", "files", "hardware", "k8s", "kubespan", "network", "network-config", "perf",
	"runtime", "secrets", "security",
}

// Store is the state of one boot.
type Store struct {
	state state.State
	// missing are types that this version of Talos hasn't.
	missing []string
}

// NewStore makes a state with all namespaces and types of a version of Talos registered.
func NewStore(ctx context.Context, version *profile.Profile) (*Store, error) {
	core := namespaced.NewState(func(ns string) state.CoreState {
		return inmem.NewStateWithOptions(
			inmem.WithHistoryInitialCapacity(8), inmem.WithHistoryMaxCapacity(1024), inmem.WithHistoryGap(4),
		)(ns)
	})
	s := &Store{state: state.WrapCore(core), missing: version.MissingTypes}
	ns := registry.NewNamespaceRegistry(s.state)
	if err := ns.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("register the meta namespace: %w", err)
	}
	for _, name := range namespaces {
		if err := ns.Register(ctx, name, ""); err != nil {
			return nil, fmt.Errorf("register namespace %s: %w", name, err)
		}
	}
	types := registry.NewResourceRegistry(s.state)
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("register the meta types: %w", err)
	}
	all := resourceTypes()
	for _, extra := range version.ExtraTypes {
		all = append(all, NewExtra(extra, nil))
	}
	for _, t := range all {
		if slices.Contains(s.missing, t.ResourceDefinition().Type) {
			continue
		}
		if err := types.Register(ctx, t); err != nil {
			return nil, fmt.Errorf("register type: %w", err)
		}
	}
	return s, nil
}

// State is the state without an access policy, for the node itself.
func (s *Store) State() state.State { return s.state }

// Put creates the resource, or updates it if its spec or labels differ; what is equal keeps its version, so that no
// watcher is woken for nothing. owner is the Talos controller that owns such a resource on a real node.
func (s *Store) Put(ctx context.Context, owner string, r resource.Resource) error {
	current, err := s.state.Get(ctx, r.Metadata())
	if state.IsNotFoundError(err) {
		return s.state.Create(ctx, r, state.WithCreateOwner(owner))
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", r.Metadata(), err)
	}
	if reflect.DeepEqual(current.Spec(), r.Spec()) && current.Metadata().Labels().Equal(*r.Metadata().Labels()) {
		return nil
	}
	md := current.Metadata().Copy()
	r.Metadata().SetVersion(md.Version())
	r.Metadata().SetCreated(md.Created())
	for _, finalizer := range *md.Finalizers() {
		r.Metadata().Finalizers().Add(finalizer)
	}
	return s.state.Update(ctx, r, state.WithUpdateOwner(md.Owner()))
}

// Drop destroys the resource if it is there.
func (s *Store) Drop(ctx context.Context, pointer resource.Pointer) error {
	current, err := s.state.Get(ctx, pointer)
	if state.IsNotFoundError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", pointer, err)
	}
	for _, finalizer := range *current.Metadata().Finalizers() {
		if err := s.state.RemoveFinalizer(ctx, pointer, finalizer); err != nil {
			return fmt.Errorf("free %s: %w", pointer, err)
		}
	}
	err = s.state.Destroy(ctx, pointer, state.WithDestroyOwner(current.Metadata().Owner()))
	if state.IsNotFoundError(err) {
		return nil
	}
	return err
}

// Sync makes the resources of one kind (one namespace and type) exactly those given. Of a type that this version hasn't
// there are none.
func (s *Store) Sync(ctx context.Context, owner string, kind resource.Kind, want []resource.Resource) error {
	if slices.Contains(s.missing, kind.Type()) {
		return nil
	}
	keep := map[resource.ID]bool{}
	for _, r := range want {
		keep[r.Metadata().ID()] = true
		if err := s.Put(ctx, owner, r); err != nil {
			return err
		}
	}
	list, err := s.state.List(ctx, resource.NewMetadata(kind.Namespace(), kind.Type(), "", resource.VersionUndefined))
	if err != nil {
		return fmt.Errorf("list %s: %w", kind.Type(), err)
	}
	for _, r := range list.Items {
		if !keep[r.Metadata().ID()] {
			if err := s.Drop(ctx, r.Metadata()); err != nil {
				return err
			}
		}
	}
	return nil
}
