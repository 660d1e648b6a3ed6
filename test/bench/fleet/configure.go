// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack"
)

// patchName is the patch that is changed.
const patchName = "bench"

// leasesName is the patch because of which kubelets renew their Leases every 30 s, and no longer every 10: the kubelets of a
// large fleet are the greatest part of what a small computer that hosts all of it has to do while nothing happens.
const leasesName = "long-leases"

func (b *bench) lengthenLeases(ctx context.Context) error {
	client, err := versioned.NewForConfig(fast(b.stack.Admin()))
	if err != nil {
		return fmt.Errorf("lengthen the Leases: %w", err)
	}
	return create(ctx, client, leasesName, `{"kubelet":{"extraConfig":{"nodeLeaseDurationSeconds":120}}}`)
}

// create makes a patch of all workers' machine section.
func create(ctx context.Context, client versioned.Interface, name, section string) error {
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, Role: v1alpha1.RoleWorker}
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(section)}
	if _, err := client.IchorV1alpha1().TalosConfigPatches().Create(ctx, patch, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create patch %s: %w", name, err)
	}
	return nil
}

// allowConfigured sets how many are configured at a time. It changes the cluster, so each machine is looked at, which is over
// before the patch changes.
func (b *bench) allowConfigured(ctx context.Context) error {
	client, err := versioned.NewForConfig(fast(b.stack.Admin()))
	if err != nil {
		return fmt.Errorf("change the cluster: %w", err)
	}
	return allow(ctx, client, b.configured)
}

// configure lets a changed patch reach all workers. Each takes a while to take it up; that is all that they do by themselves.
func (b *bench) configure(ctx context.Context) error {
	client, err := versioned.NewForConfig(fast(b.stack.Admin()))
	if err != nil {
		return fmt.Errorf("change a patch: %w", err)
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range b.stack.Fleet().Machines {
		if m := &b.stack.Fleet().Machines[i]; m.State == fleet.StateOff {
			group.Go(func() error {
				_, err := b.stack.Machines().Do(inner, "late-apply", m.Name, b.take.String())
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("slow the machines down: %w", err)
	}
	before, err := cpuTimes()
	if err != nil {
		return err
	}
	say(b.begin, "a patch for all workers")
	return b.profileFor(ctx, "configuration", func() error {
		start := time.Now()
		if err := create(ctx, client, patchName, `{"sysctls":{"vm.swappiness":"1"}}`); err != nil {
			return err
		}
		told := start
		if err := until(ctx, "every machine has the patch", func(context.Context) (bool, error) {
			n := b.seen.count(configured)
			if time.Since(told) > tellEvery {
				told = time.Now()
				say(b.begin, "%d have the patch; controller %s", n, b.memory())
			}
			return n >= b.machines, nil
		}); err != nil {
			return err
		}
		b.figures.configuration = b.seen.last(configured).Sub(start)
		after, err := cpuTimes()
		if err != nil {
			return err
		}
		b.figures.configurationCPU = difference(before, after)
		say(b.begin, "every worker has the patch after %.1f s", b.figures.configuration.Seconds())
		return nil
	})
}
