// SPDX-License-Identifier: Apache-2.0

// Package mount does for a process of the local stack what a kubelet does for a pod with a Secret volume: it writes the
// Secret's keys as files, and whenever the Secret changes, swaps them all at once. Who reads ca.crt and then tls.crt may
// see two versions, as in a pod; a single file is never half written.
package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// The names that a kubelet uses in a volume. Source: k8s.io/kubernetes, pkg/volume/util/atomic_writer.go.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	versions    = "..version-*"
)

// Volume is a Secret in a folder.
type Volume struct {
	dir    string
	logger *slog.Logger

	mu      sync.Mutex
	current map[string][]byte
	first   chan struct{}
}

// Secret keeps a folder like a Secret until ctx ends. It returns at once; run is what works.
func Secret(client kubernetes.Interface, namespace, name, dir string, logger *slog.Logger) (volume *Volume, run func(ctx context.Context)) {
	v := &Volume{dir: dir, logger: logger, first: make(chan struct{})}
	secrets := client.CoreV1().Secrets(namespace)
	named := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		return options
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return secrets.List(ctx, named(options))
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return secrets.Watch(ctx, named(options))
			},
		}, client),
		ObjectType: &corev1.Secret{},
		// As in a pod, the files of a Secret that was deleted stay.
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: v.see, UpdateFunc: func(_, now any) { v.see(now) }},
	})
	return v, informer.RunWithContext
}

// File is the path of a key.
func (v *Volume) File(key string) string { return filepath.Join(v.dir, key) }

// Wait waits until the files are there.
func (v *Volume) Wait(ctx context.Context) error {
	select {
	case <-v.first:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the files in %s: %w", v.dir, ctx.Err())
	}
}

func (v *Volume) see(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return
	}
	if err := v.Swap(secret.Data); err != nil {
		v.logger.Error("write a Secret's files", "secret", secret.Name, "error", err)
	}
}

// Swap puts other contents in the place of those that are there.
func (v *Volume) Swap(data map[string][]byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != nil && maps.EqualFunc(v.current, data, bytes.Equal) {
		return nil
	}
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return err
	}
	before, err := os.Readlink(filepath.Join(v.dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	version, err := os.MkdirTemp(v.dir, versions)
	if err != nil {
		return err
	}
	for key, content := range data {
		if err := os.WriteFile(filepath.Join(version, key), content, 0o600); err != nil {
			return err
		}
	}
	if err := v.link(filepath.Base(version)); err != nil {
		return err
	}
	for key := range data {
		if err := os.Symlink(filepath.Join(dataLink, key), v.File(key)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for key := range v.current {
		if _, kept := data[key]; !kept {
			if err := os.Remove(v.File(key)); err != nil {
				return err
			}
		}
	}
	if before != "" {
		// Readers that watch their files are told by this that they changed.
		if err := os.RemoveAll(filepath.Join(v.dir, filepath.Base(before))); err != nil {
			return err
		}
	}
	if v.current == nil {
		close(v.first)
	}
	v.current = maps.Clone(data)
	return nil
}

// link makes a version the current one, at once.
func (v *Volume) link(version string) error {
	next := filepath.Join(v.dir, newDataLink)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(v.dir, dataLink))
}
