// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var errLostLead = errors.New("lost the lead: the Lease could not be renewed in time")

// lead works while this process is the leader. The lead is given back only when the work has ended: what was begun is
// finished by the process that began it.
func (p *program) lead(ctx context.Context) error {
	name, err := identity()
	if err != nil {
		return err
	}
	// The election outlives ctx until the work has ended.
	electing, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	outcome := make(chan error, 1)
	var led atomic.Bool
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: component},
			Client:     p.kubernetes.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name, EventRecorder: p.recorder},
		},
		LeaseDuration:   p.options.LeaseDuration,
		RenewDeadline:   p.options.RenewDeadline,
		RetryPeriod:     p.options.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            component,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				led.Store(true)
				klog.FromContext(ctx).Info("controller: leading", "identity", name)
				outcome <- p.workWhile(ctx, leading)
				endElection()
			},
			OnStoppedLeading: func() { klog.FromContext(ctx).Info("controller: not leading any more", "identity", name) },
		},
	})
	if err != nil {
		return fmt.Errorf("prepare the election of a leader: %w", err)
	}
	go func() {
		// Before it leads there is nothing to finish.
		select {
		case <-ctx.Done():
			if !elector.IsLeader() {
				endElection()
			}
		case <-electing.Done():
		}
	}()
	elector.Run(electing)
	if !led.Load() {
		return nil
	}
	return ended(outcome)
}

// workWhile works until ctx ends, or the lead is lost.
func (p *program) workWhile(ctx, leading context.Context) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	release := context.AfterFunc(leading, func() { stop(errLostLead) })
	defer release()
	err := p.work(working)
	if err == nil && ctx.Err() == nil && leading.Err() != nil {
		return errLostLead
	}
	return err
}

// ended waits, bounded, for the work to end after the election has.
func ended(outcome <-chan error) error {
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case err := <-outcome:
		return err
	case <-timer.C:
		return fmt.Errorf("what was begun did not end within %s", endTimeout)
	}
}
