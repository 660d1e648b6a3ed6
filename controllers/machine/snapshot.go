// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"time"

	"maesh.dev/ichor/controllers/operation/snapshot"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// Snapshots keeps fresh snapshots of etcd.
type Snapshots interface {
	// Fresh sees to it that there is one of the cluster, and names it. It uses take if there is none.
	Fresh(ctx context.Context, cluster *v1alpha1.TalosCluster, now time.Time, take snapshot.Take) (name string, err error)
}

// snapshotTimeout bounds the taking of a snapshot, which may have gigabytes.
const snapshotTimeout = 30 * time.Minute

// judgedFor is how long what etcd was found to be counts while a snapshot is taken.
const judgedFor = 15 * time.Second

// unsaved sees to a fresh snapshot of etcd before a control plane leaves it, and says why there is none: a member that
// answers is read. A cluster that is being destroyed needs none.
func (v *visit) unsaved(ctx context.Context, node talos.EtcdReader) (why string) {
	if v.m.Spec.Role != v1alpha1.RoleControlPlane || v.destroyed() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	began := v.Clock.Now()
	_, err := v.Snapshots.Fresh(ctx, v.cluster, v.Clock.Now(), func(ctx context.Context, to io.Writer) error {
		_, err := node.EtcdSnapshot(ctx, to)
		return err
	})
	if err != nil {
		return fmt.Sprintf("there is no fresh snapshot of etcd: %s", err)
	}
	if took := v.Clock.Since(began); took > judgedFor {
		return fmt.Sprintf("a snapshot of etcd was taken, which took %s; whether the machine may leave is judged anew", took.Round(time.Second))
	}
	return ""
}

// reader is who is asked for a snapshot: the machine itself while its etcd answers, else who takes it out of etcd.
func (d *departure) reader(own talos.EtcdReader) talos.EtcdReader {
	if d.peer != nil {
		return d.peer
	}
	return own
}
