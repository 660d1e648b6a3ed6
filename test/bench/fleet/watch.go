// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
)

// moments are when things were first seen of one machine.
type moments struct {
	found, approved, begun, joined, ready, configured time.Time
}

// observer watches the machines at the given addresses, as anybody may who can read.
type observer struct {
	addresses map[string]bool
	now       func() time.Time
	// stop waits until nothing is watched any more, once the context has ended.
	stop func()

	mu       sync.Mutex
	machines map[string]*moments
}

// observe begins to watch, until ctx ends.
func observe(ctx context.Context, config *rest.Config, addresses map[string]bool) (*observer, error) {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("watch machines: %w", err)
	}
	o := &observer{addresses: addresses, now: time.Now, machines: map[string]*moments{}}
	factory := externalversions.NewSharedInformerFactory(client, 0)
	informer := factory.Ichor().V1alpha1().TalosMachines().Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: o.see, UpdateFunc: func(_, now any) { o.see(now) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch machines: %w", err)
	}
	o.stop = factory.Shutdown
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil, fmt.Errorf("watch machines: %w", context.Cause(ctx))
	}
	return o, nil
}

func (o *observer) see(object any) {
	m, ok := object.(*v1alpha1.TalosMachine)
	if !ok || len(m.Status.Addresses) == 0 || !o.addresses[m.Status.Addresses[0]] {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.machines[m.Name]
	if seen == nil {
		seen = &moments{}
		o.machines[m.Name] = seen
	}
	now := o.now()
	first := func(at *time.Time, is bool) {
		if is && at.IsZero() {
			*at = now
		}
	}
	record := m.Status.Provisioning
	first(&seen.found, m.Status.Inventory != nil)
	first(&seen.approved, m.Spec.ApprovalState == v1alpha1.ApprovalApproved)
	first(&seen.begun, record != nil && record.IntendedAt != nil)
	first(&seen.joined, meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionJoined))
	first(&seen.configured, m.Status.Config != nil && slices.ContainsFunc(m.Status.Config.Patches, func(p v1alpha1.ConfigInput) bool { return p.Name == patchName }) &&
		meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigApplied) && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady))
	first(&seen.ready, meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady))
}

// names are the machines that were seen.
func (o *observer) names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	names := make([]string, 0, len(o.machines))
	for name := range o.machines {
		names = append(names, name)
	}
	return names
}

// count tells how many machines have reached a moment.
func (o *observer) count(of func(*moments) time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, each := range o.machines {
		if !of(each).IsZero() {
			n++
		}
	}
	return n
}

// last is when the last machine reached a moment.
func (o *observer) last(of func(*moments) time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	var last time.Time
	for _, each := range o.machines {
		if at := of(each); at.After(last) {
			last = at
		}
	}
	return last
}

// between are the times between two moments of each machine.
func (o *observer) between(from, to func(*moments) time.Time) []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []time.Duration
	for _, each := range o.machines {
		if a, b := from(each), to(each); !a.IsZero() && !b.IsZero() {
			out = append(out, b.Sub(a))
		}
	}
	return out
}

func found(m *moments) time.Time    { return m.found }
func approved(m *moments) time.Time { return m.approved }
func begun(m *moments) time.Time    { return m.begun }
func joined(m *moments) time.Time   { return m.joined }
func ready(m *moments) time.Time    { return m.ready }

// configured is when a machine was Ready with the changed patch.
func configured(m *moments) time.Time { return m.configured }
