// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

const (
	// joinTimeout and promoteTimeout are Talos' own (constants.EtcdJoinTimeout; services/etcd.go promoteMember).
	joinTimeout    = 30 * time.Minute
	promoteTimeout = 10 * time.Minute
	attemptTimeout = 30 * time.Second
)

// join adds this node to the existing cluster as a learner, trying again until it succeeds or joinTimeout is over. It
// returns etcd's initial cluster and the new member's id.
func (m *Member) join(ctx context.Context) (members string, id uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()

	err = retry(ctx, m.options.JoinEvery, func(ctx context.Context) error {
		members, id, err = m.addSelf(ctx)

		return err
	})

	return members, id, err
}

// addSelf is one attempt: an old member of the same hostname is removed first, for the node has no data any more.
func (m *Member) addSelf(ctx context.Context) (members string, id uint64, err error) {
	others := m.others()
	if len(others) == 0 {
		return "", 0, errNoEndpoints
	}

	client, err := m.dial(ctx, others...)
	if err != nil {
		return "", 0, err
	}

	defer client.Close() //nolint:errcheck // every call was answered

	ctx = clientv3.WithRequireLeader(ctx)

	list, err := client.MemberList(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("error getting etcd member list: %w", err)
	}

	for _, member := range list.Members {
		if member.Name != m.options.Name {
			continue
		}

		if _, err = client.MemberRemove(ctx, member.ID); err != nil {
			return "", 0, fmt.Errorf("error removing self from the member list: %w", err)
		}
	}

	added, err := client.MemberAddAsLearner(ctx, []string{url(m.options.Address, peerPort)})
	if err != nil {
		return "", 0, fmt.Errorf("error adding member: %w", err)
	}

	if list, err = client.MemberList(ctx); err != nil {
		return "", 0, fmt.Errorf("error getting second etcd member list: %w", err)
	}

	return m.initialCluster(list, added.Member.ID), added.Member.ID, nil
}

// initialCluster names every peer URL of the cluster; the new member has no name in the list yet.
func (m *Member) initialCluster(list *clientv3.MemberListResponse, id uint64) string {
	var peers []string

	for _, member := range list.Members {
		name := member.Name
		if member.ID == id {
			name = m.options.Name
		}

		for _, peer := range member.PeerURLs {
			peers = append(peers, name+"="+peer)
		}
	}

	return strings.Join(peers, ",")
}

// promote makes the learner a voter as soon as it has caught up with the leader.
func (m *Member) promote(ctx context.Context, id uint64) {
	ctx, cancel := context.WithTimeout(ctx, promoteTimeout)
	defer cancel()

	err := retry(ctx, m.options.PromoteEvery, func(ctx context.Context) error {
		err := errNoEndpoints

		// One endpoint at a time: a client that settles on the learner itself would never succeed.
		for _, address := range m.others() {
			client, dialErr := m.dial(ctx, address)
			if dialErr != nil {
				return dialErr
			}

			callCtx, cancelCall := context.WithTimeout(ctx, healthTimeout)
			_, err = client.MemberPromote(callCtx, id)

			cancelCall()
			client.Close() //nolint:errcheck,gosec // the call was answered

			if err == nil {
				return nil
			}
		}

		return err
	})

	switch {
	case err == nil:
		m.options.Logger.Info("etcd learner became a voter", "member", m.options.Name)
	case errors.Is(err, context.Canceled):
	default:
		m.options.Logger.Warn("etcd learner was not promoted", "member", m.options.Name, "error", err)
	}
}

// restore makes the data folder from the uploaded snapshot, as a new cluster of this member alone.
func (m *Member) restore(skipHashCheck bool) error {
	manager := snapshot.NewV3(zap.NewNop())

	if _, err := manager.Status(m.options.SnapshotPath); err != nil {
		return fmt.Errorf("error verifying snapshot: %w", err)
	}

	err := manager.Restore(snapshot.RestoreConfig{
		SnapshotPath:   m.options.SnapshotPath,
		Name:           m.options.Name,
		OutputDataDir:  m.options.DataDir,
		PeerURLs:       []string{url(m.options.Address, peerPort)},
		InitialCluster: m.options.alone(),
		SkipHashCheck:  skipHashCheck,
	})
	if err != nil {
		return fmt.Errorf("error recovering from the snapshot: %w", err)
	}

	if err = os.Remove(m.options.SnapshotPath); err != nil {
		return fmt.Errorf("error deleting snapshot: %w", err)
	}

	return nil
}

// retry runs attempt, each bounded by attemptTimeout, about every pause until it succeeds or ctx ends. The last error
// is kept beside the context's.
func retry(ctx context.Context, pause time.Duration, attempt func(context.Context) error) error {
	for {
		attemptCtx, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := attempt(attemptCtx)

		cancel()

		if err == nil {
			return nil
		}

		jitter := time.Duration(rand.Int64N(int64(pause)/4 + 1))
		timer := time.NewTimer(pause + jitter)

		select {
		case <-ctx.Done():
			timer.Stop()

			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-timer.C:
		}
	}
}
