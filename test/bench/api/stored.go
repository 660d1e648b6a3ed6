// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// record is an object as it is in etcd.
type record struct {
	key     string
	value   []byte
	version int64
}

// now is etcd's revision, which is the version of a list made now.
func (w *world) now(ctx context.Context) (int64, error) {
	found, err := w.store.Get(ctx, "now")
	if err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	return found.Header.Revision, nil
}

func (w *world) get(ctx context.Context, key string) (record, error) {
	found, err := w.store.Get(ctx, key)
	if err != nil {
		return record{}, fmt.Errorf("read %s in etcd: %w", key, err)
	}
	if len(found.Kvs) != 1 {
		return record{}, fmt.Errorf("read %s in etcd: %d keys", key, len(found.Kvs))
	}
	return record{key, found.Kvs[0].Value, found.Kvs[0].ModRevision}, nil
}

// put writes an object back as it was; its version is a new one.
func (w *world) put(ctx context.Context, r *record) error {
	written, err := w.store.Put(ctx, r.key, string(r.value))
	if err != nil {
		return fmt.Errorf("write %s in etcd: %w", r.key, err)
	}
	r.version = written.Header.Revision
	return nil
}

// machine reads the stored machine with its version.
func (r record) machine() (*v1alpha1.TalosMachine, error) {
	machine := &v1alpha1.TalosMachine{}
	if err := json.Unmarshal(r.value, machine); err != nil {
		return nil, fmt.Errorf("read machine at %s: %w", r.key, err)
	}
	machine.ResourceVersion = strconv.FormatInt(r.version, 10)
	return machine, nil
}

func (s *side) machineKey(n int) string { return s.stored + "/talosmachines/" + nameOf(n) }

func (s *side) clusterKey() string { return s.stored + "/talosclusters/" + clusterName }

// bytesStored is what the machines of a side take in etcd: keys and values.
func (w *world) bytesStored(ctx context.Context, s *side) (total int64, count int, err error) {
	prefix := s.stored + "/talosmachines/"
	key, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		page, err := w.store.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(500))
		if err != nil {
			return 0, 0, fmt.Errorf("read machines in etcd: %w", err)
		}
		for _, kv := range page.Kvs {
			total += int64(len(kv.Key) + len(kv.Value))
			count++
			key = string(kv.Key) + "\x00"
		}
		if !page.More {
			return total, count, nil
		}
	}
}
