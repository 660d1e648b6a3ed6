// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"io"
	"time"

	"maesh.dev/ichor/controllers/operation/snapshot"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/secretsbundle"
)

// Snapshots keeps fresh snapshots of etcd.
type Snapshots interface {
	// Fresh sees to it that there is one of the cluster, and names it. It uses take if there is none.
	Fresh(ctx context.Context, cluster *v1alpha1.TalosCluster, now time.Time, take snapshot.Take) (name string, err error)
}

// Bundles reads a cluster's secrets, held against the hash that the cluster remembers.
type Bundles interface {
	LoadFor(ctx context.Context, cluster *v1alpha1.TalosCluster) (*secretsbundle.Bundle, error)
}

// EncryptedSnapshots keeps snapshots in a directory, encrypted by what the cluster's secrets bundle gives.
type EncryptedSnapshots struct {
	Keeper  *snapshot.Keeper
	Bundles Bundles
}

// Fresh implements Snapshots.
func (s EncryptedSnapshots) Fresh(ctx context.Context, cluster *v1alpha1.TalosCluster, now time.Time, take snapshot.Take) (string, error) {
	bundle, err := s.Bundles.LoadFor(ctx, cluster)
	if err != nil {
		return "", err
	}
	certificates := bundle.Talos().Certs
	if certificates == nil || certificates.Etcd == nil {
		return "", fmt.Errorf("the secrets bundle of cluster %s has no certificate authority of etcd", cluster.Name)
	}
	passphrase, err := snapshot.Passphrase(certificates.Etcd.Key)
	if err != nil {
		return "", err
	}
	return s.Keeper.Fresh(ctx, cluster.Name+"-"+string(cluster.UID[:min(len(cluster.UID), 8)]), passphrase, now, take)
}

// snapshotAgain is how long after a snapshot that failed another one is taken.
const snapshotAgain = 30 * time.Second

// snapshotTimeout bounds the taking of a snapshot, which may have gigabytes.
const snapshotTimeout = 30 * time.Minute

// snapshot sees to a fresh snapshot of etcd before a control plane goes down.
func (v *visit) snapshot(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	name, err := v.Snapshots.Fresh(ctx, v.cluster, v.Clock.Now(), func(ctx context.Context, to io.Writer) error {
		node, err := v.etcdReader(ctx)
		if err != nil {
			return err
		}
		defer node.Close() //nolint:errcheck // it was read from only
		_, err = node.EtcdSnapshot(ctx, to)
		return err
	})
	if err != nil {
		return outcome{message: fmt.Sprintf("there is no fresh snapshot of etcd: %s", err), again: snapshotAgain}, nil
	}
	return done("etcd snapshot %s is fresh", name)
}
