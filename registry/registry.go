// SPDX-License-Identifier: Apache-2.0

// Package registry builds the storage of every resource of the group, once.
package registry

import (
	"context"
	"fmt"
	"maps"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/registry/ichorinstallations"
	"maesh.dev/ichor/registry/ichorusers"
	"maesh.dev/ichor/registry/machinereclaims"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/registry/talosclusters"
	"maesh.dev/ichor/registry/talosconfigpatches"
	"maesh.dev/ichor/registry/taloscredentialrequests"
	"maesh.dev/ichor/registry/talosetcdbackups"
	"maesh.dev/ichor/registry/talosmachines"
	"maesh.dev/ichor/registry/talosoperations"
	"maesh.dev/ichor/registry/talosstorages"
	"maesh.dev/ichor/registry/verbs"
)

const (
	// ReapInterval is the time between two searches for slots that nobody stands behind.
	ReapInterval = time.Minute
	// SweepInterval is the time between two searches for histories of machines that are gone.
	SweepInterval = time.Hour
	// releaseTimeout bounds how long a deletion waits for its slot to be freed; the reaper does what is left.
	releaseTimeout = 5 * time.Second
)

// Stored are the resources that have objects in etcd. All are served but the passwords of users, and the revisions of
// machines' configurations, which talosmachines/history shows.
var Stored = []string{
	"ichorinstallations", "ichorusers", ichorusers.PasswordResource, "machinereclaims", "talosclusters", "talosconfigpatches",
	"taloscredentialrequests", "talosetcdbackups", talosmachines.HistoryResource, "talosmachines", "talosoperations", "talosstorages",
}

// Uncached are the resources of Stored that no watch cache should hold.
var Uncached = []string{ichorusers.PasswordResource, talosmachines.HistoryResource}

// Registry is the storage of every resource.
type Registry struct {
	clusters *talosclusters.Storage
	machines *talosmachines.Storage
	backups  *talosetcdbackups.Storage
	gate     *slots.Gate
	served   map[string]rest.Storage

	histories *talosmachines.Histories
}

// New builds the storage. The authorizer is asked for the verbs that Ichor adds; there is no default.
func New(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, a authorizer.Authorizer, streams talosmachines.NodeStreams, gateOptions ...slots.Option) (*Registry, error) {
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
	histories, err := talosmachines.NewHistories(options)
	if err != nil {
		return nil, err
	}
	store := slots.NewRegistryStore(clusters, machines)
	r := &Registry{gate: slots.NewGate(store, gateOptions...), histories: histories}
	r.machines = talosmachines.New(typer, machines, talosmachines.Dependencies{
		Store: store, Gate: r.gate, Checker: checker, Released: r.release, Histories: histories,
	})
	r.clusters = talosclusters.New(typer, clusters, talosclusters.Dependencies{Checker: checker, Machines: r.machines.Machine.Machines})
	r.served = map[string]rest.Storage{
		"talosclusters":          r.clusters.Cluster,
		"talosclusters/status":   r.clusters.Status,
		"talosclusters/finalize": r.clusters.Finalize,
		"talosmachines":          r.machines.Machine,
		"talosmachines/status":   r.machines.Status,
		"talosmachines/approval": r.machines.Approval,
		"talosmachines/identity": r.machines.Identity,
		"talosmachines/finalize": r.machines.Finalize,
		"talosmachines/log":      r.machines.NewLog(streams),
	}
	return r, r.addOthers(typer, options, checker)
}

// addOthers builds the storage of the kinds that need nothing but themselves, and a word of their neighbours.
func (r *Registry) addOthers(typer runtime.ObjectTyper, options generic.RESTOptionsGetter, checker verbs.Checker) error {
	patches, err := talosconfigpatches.New(typer, options, talosconfigpatches.Dependencies{Cluster: r.cluster, Machines: r.machines.Machine.Machines, Checker: checker})
	if err != nil {
		return err
	}
	operations, err := talosoperations.New(typer, options)
	if err != nil {
		return err
	}
	if r.backups, err = talosetcdbackups.New(typer, options); err != nil {
		return err
	}
	storages, err := talosstorages.New(typer, options, r.backupsTo)
	if err != nil {
		return err
	}
	reclaims, err := machinereclaims.New(typer, options, r.machines.Machine.Machines)
	if err != nil {
		return err
	}
	credentials, err := taloscredentialrequests.New(typer, options, checker)
	if err != nil {
		return err
	}
	installations, err := ichorinstallations.New(typer, options)
	if err != nil {
		return err
	}
	users, err := ichorusers.New(typer, options)
	if err != nil {
		return err
	}
	neighbours := talosmachines.Neighbours{Cluster: r.cluster, Patches: listed(patches.Main)}
	maps.Copy(r.served, map[string]rest.Storage{
		"talosmachines/config":           r.machines.NewConfig(neighbours),
		"talosmachines/history":          r.machines.NewHistory(neighbours),
		"talosmachines/drift":            r.machines.NewDrift(),
		"talosconfigpatches":             patches.Main,
		"talosconfigpatches/status":      patches.Status,
		"talosconfigpatches/preview":     patches.Preview,
		"talosoperations":                operations.Main,
		"talosoperations/status":         operations.Status,
		"talosoperations/resume":         operations.Resume,
		"talosoperations/cancel":         operations.Cancel,
		"talosetcdbackups":               r.backups.Main,
		"talosetcdbackups/status":        r.backups.Status,
		"talosstorages":                  storages.Main,
		"talosstorages/status":           storages.Status,
		"machinereclaims":                reclaims.Main,
		"machinereclaims/status":         reclaims.Status,
		"taloscredentialrequests":        credentials.Main,
		"taloscredentialrequests/status": credentials.Status,
		"ichorinstallations":             installations.Main,
		"ichorinstallations/status":      installations.Status,
		"ichorusers":                     users.Main,
		"ichorusers/status":              users.Status,
		"ichorusers/certificate":         users.Certificate,
		"ichorusers/password":            users.Password,
	})
	return nil
}

// backupsTo are the names of the backups that go to a storage.
func (r *Registry) backupsTo(ctx context.Context, storage string) ([]string, error) {
	obj, err := r.backups.Main.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var names []string
	for _, backup := range obj.(*ichor.TalosEtcdBackupList).Items {
		if backup.Spec.StorageRef.Name == storage {
			names = append(names, backup.Name)
		}
	}
	return names, nil
}

// cluster reads a cluster.
func (r *Registry) cluster(ctx context.Context, name string) (*ichor.TalosCluster, error) {
	obj, err := r.clusters.Cluster.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*ichor.TalosCluster), nil
}

// listed reads all patches.
func listed(patches rest.Lister) func(context.Context) ([]ichor.TalosConfigPatch, error) {
	return func(ctx context.Context) ([]ichor.TalosConfigPatch, error) {
		obj, err := patches.List(ctx, &metainternalversion.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list patches: %w", err)
		}
		return obj.(*ichor.TalosConfigPatchList).Items, nil
	}
}

// Storage is what the API server serves, by resource and subresource.
func (r *Registry) Storage() map[string]rest.Storage { return r.served }

// Gate is the control-plane gate.
func (r *Registry) Gate() *slots.Gate { return r.gate }

// Reap frees slots that nobody stands behind, until the context ends.
func (r *Registry) Reap(ctx context.Context) {
	r.gate.Run(ctx, ReapInterval, r.clusterNames, func(err error) { klog.FromContext(ctx).Error(err, "Freeing control-plane slots") })
}

// Sweep removes the histories of machines that are gone, until the context ends.
func (r *Registry) Sweep(ctx context.Context) {
	for ticker := time.Tick(SweepInterval); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
		removed, err := r.histories.Sweep(ctx, r.machines.Machine.Machines)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Looking for histories of machines that are gone; it is tried again", "after", SweepInterval)
		}
		if removed > 0 {
			klog.FromContext(ctx).Info("Removed the histories of machines that are gone", "machines", removed)
		}
	}
}

// SlotCount says how many control planes a cluster has room for.
type SlotCount struct {
	Cluster    string
	Held, Free int
}

// SlotCounts are those of every cluster, as new as the watch cache.
func (r *Registry) SlotCounts(ctx context.Context) ([]SlotCount, error) {
	obj, err := r.clusters.Cluster.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	var counts []SlotCount
	for i := range obj.(*ichor.TalosClusterList).Items {
		cluster := &obj.(*ichor.TalosClusterList).Items[i]
		held := len(cluster.Status.ControlPlaneSlots)
		counts = append(counts, SlotCount{Cluster: cluster.Name, Held: held, Free: max(0, slots.Limit(cluster)-held)})
	}
	return counts, nil
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
