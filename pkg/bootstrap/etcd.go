// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"maesh.dev/ichor/pkg/talos"
)

// bootstrapEtcd starts etcd with this node as its first member, exactly once. The intent is in the journal before the
// call. A lost answer is resolved by asking the same node: its member list, or its refusal because there is data
// already. The call never goes to another node: that would make a second cluster.
func (r *run) bootstrapEtcd(ctx context.Context) error {
	// Asking an etcd that isn't there takes long, so it is asked only where a call may have worked.
	called := r.journal.Etcd.IntendedAt != nil
	return r.withNode(ctx, func(ctx context.Context, node talos.ConfiguredNode) (bool, string, error) {
		if called {
			if members, err := etcdMembers(ctx, node); err == nil && len(members) > 0 {
				return true, "", r.recordEtcd(members)
			}
		}
		if r.journal.Etcd.DoneAt != nil {
			return false, fmt.Sprintf("etcd was bootstrapped at %s and has not come up yet", r.journal.Etcd.DoneAt.Format("15:04:05")), nil
		}
		first := r.journal.Etcd.IntendedAt == nil
		if first {
			now := r.now()
			r.journal.Etcd.IntendedAt = &now
			if err := r.journal.save(); err != nil {
				return false, "", err
			}
		}
		err := node.Bootstrap(ctx)
		switch {
		case talos.IsAlreadyBootstrapped(err) && first:
			r.journal.Etcd = etcdRecord{}
			return false, "", errors.Join(r.journal.save(), errors.New("there is etcd data on the machine, but this journal knows of no bootstrap; use the state directory that it was bootstrapped from, or wipe the machine"))
		case err == nil, talos.IsAlreadyBootstrapped(err):
			now := r.now()
			called, r.journal.Etcd.DoneAt = true, &now
			return false, "etcd is starting", r.journal.save()
		case talos.IsNotYet(err):
			return false, err.Error(), nil
		case talos.IsLost(err):
			called = true
			return false, err.Error(), nil
		default:
			return false, "", err
		}
	})
}

// membersTimeout bounds the question for members. A node whose etcd doesn't run yet gives no answer at all, while one
// whose etcd runs answers at once.
const membersTimeout = 3 * time.Second

func etcdMembers(ctx context.Context, node talos.ConfiguredNode) ([]talos.EtcdMember, error) {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	return node.EtcdMembers(ctx)
}

// recordEtcd writes down that etcd runs.
func (r *run) recordEtcd(members []talos.EtcdMember) error {
	if r.journal.Etcd.DoneAt == nil {
		now := r.now()
		r.journal.Etcd.DoneAt = &now
		if err := r.journal.save(); err != nil {
			return err
		}
	}
	r.tell("etcd runs with %d member(s)", len(members))
	return nil
}
