// SPDX-License-Identifier: Apache-2.0

// Package registry builds the storage of every resource of the group, once.
package registry

import (
	"context"
	"fmt"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/registry/talosclusters"
	"maesh.dev/ichor/registry/talosmachines"
	"maesh.dev/ichor/registry/verbs"
)

const (
	// ReapInterval is the time between two searches for slots that nobody stands behind.
	ReapInterval = time.Minute
	// releaseTimeout bounds how long a deletion waits for its slot to be freed; the reaper does what is left.
	releaseTimeout = 5 * time.Second
)

// Registry is the storage of every resource.
type Registry struct {
	clusters *talosclusters.Storage
	machines *talosmachines.Storage
	gate     *slots.Gate
}

// New builds the storage. The authorizer is asked for the verbs that Ichor adds; there is no default.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, a authorizer.Authorizer, gateOptions ...slots.Option) (*Registry, error) {
	checker, err := verbs.NewChecker(a)
	if err != nil {
		return nil, err
	}
	clusters, err := talosclusters.NewStore(typer, options)
	if err != nil {
		return nil, fmt.Errorf("build storage of talosclusters: %w", err)
	}
	machines, err := talosmachines.NewStore(typer, options)
	if err != nil {
		return nil, fmt.Errorf("build storage of talosmachines: %w", err)
	}
	store := slots.NewRegistryStore(clusters, machines)
	r := &Registry{gate: slots.NewGate(store, gateOptions...)}
	r.machines = talosmachines.New(typer, machines, talosmachines.Dependencies{
		Store: store, Gate: r.gate, Checker: checker, Released: r.release,
	})
	r.clusters = talosclusters.New(typer, clusters, talosclusters.Dependencies{Checker: checker, Machines: r.machines.Machine.Machines})
	return r, nil
}

// Storage is what the API server serves, by resource and subresource.
func (r *Registry) Storage() map[string]rest.Storage {
	return map[string]rest.Storage{
		"talosclusters":          r.clusters.Cluster,
		"talosclusters/status":   r.clusters.Status,
		"talosclusters/finalize": r.clusters.Finalize,
		"talosmachines":          r.machines.Machine,
		"talosmachines/status":   r.machines.Status,
		"talosmachines/approval": r.machines.Approval,
		"talosmachines/identity": r.machines.Identity,
		"talosmachines/finalize": r.machines.Finalize,
	}
}

// Gate is the control-plane gate.
func (r *Registry) Gate() *slots.Gate { return r.gate }

// Reap frees slots that nobody stands behind, until the context ends.
func (r *Registry) Reap(ctx context.Context) {
	r.gate.Run(ctx, ReapInterval, r.clusterNames, func(err error) { klog.FromContext(ctx).Error(err, "Freeing control-plane slots") })
}

func (r *Registry) clusterNames(ctx context.Context) ([]string, error) {
	obj, err := r.clusters.Cluster.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, cluster := range obj.(*ichor.TalosClusterList).Items {
		names = append(names, cluster.Name)
	}
	return names, nil
}

// release frees the slot of a machine that is gone. The store's hook has no context, and the machine is gone already, so
// a failure is logged and left to the reaper.
func (r *Registry) release(cluster string, machine types.UID) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := r.gate.Release(ctx, cluster, machine); err != nil {
		klog.FromContext(ctx).Error(err, "Freeing the control-plane slot of a deleted machine; it is tried again", "cluster", cluster, "machineUID", machine)
	}
}
