// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// HistoryResource is under what name revisions of configurations are stored. No endpoint has it.
const HistoryResource = "talosmachinehistories"

// maxRevisions is how many revisions a machine keeps.
const maxRevisions = 10

// forgetTimeout bounds how long a deletion waits until the machine's history is gone; a sweep removes what is left.
const forgetTimeout = 5 * time.Second

// Histories is where revisions are kept: in etcd beside everything else, each under a key of its own below its machine's
// UID. A change of a thousand machines' configurations so writes a few kilobytes for each, and no watch of machines carries
// them. The server gives them no watch cache.
type Histories struct {
	storage storage.Interface
	prefix  string
	destroy func()
}

// NewHistories builds the storage.
func NewHistories(options generic.RESTOptionsGetter) (*Histories, error) {
	rest, err := options.GetRESTOptions(ichor.Resource(HistoryResource), &ichor.StoredConfigRevision{})
	if err != nil {
		return nil, fmt.Errorf("find the storage of configurations' histories: %w", err)
	}
	prefix := "/" + rest.ResourcePrefix
	backend, destroy, err := rest.Decorator(rest.StorageConfig, prefix,
		func(obj runtime.Object) (string, error) {
			stored := obj.(*ichor.StoredConfigRevision)
			return revisionKey(prefix, stored.UID, stored.Revision.Revision), nil
		},
		func() runtime.Object { return &ichor.StoredConfigRevision{} }, func() runtime.Object { return &ichor.StoredConfigRevisionList{} },
		storage.DefaultClusterScopedAttr, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("build the storage of configurations' histories: %w", err)
	}
	return &Histories{storage: backend, prefix: prefix, destroy: destroy}, nil
}

// Destroy closes the storage.
func (h *Histories) Destroy() { h.destroy() }

// revisionKey sorts as revisions do. The layout is frozen.
func revisionKey(prefix string, machine types.UID, revision int64) string {
	return fmt.Sprintf("%s/%s/%010d", prefix, machine, revision)
}

func (h *Histories) key(machine types.UID, revision int64) string {
	return revisionKey(h.prefix, machine, revision)
}

// list reads a machine's revisions, the oldest first.
func (h *Histories) list(ctx context.Context, machine types.UID) ([]ichor.StoredConfigRevision, error) {
	if machine == "" {
		return nil, errors.New("read the history of a machine's configuration: the machine has no UID")
	}
	found := &ichor.StoredConfigRevisionList{}
	err := h.storage.GetList(ctx, h.prefix+"/"+string(machine)+"/", storage.ListOptions{Predicate: storage.Everything, Recursive: true}, found)
	if err != nil {
		return nil, fmt.Errorf("read the history of a machine's configuration: %w", err)
	}
	return found.Items, nil
}

// create stores a revision; storage.IsExist tells that the machine has one of that number.
func (h *Histories) create(ctx context.Context, next *ichor.StoredConfigRevision) error {
	return h.storage.Create(ctx, h.key(next.UID, next.Revision.Revision), next, &ichor.StoredConfigRevision{}, 0)
}

// trim removes all but the newest of a machine's revisions, which are given the oldest first.
func (h *Histories) trim(ctx context.Context, revisions []ichor.StoredConfigRevision) error {
	for _, old := range revisions[:max(0, len(revisions)-maxRevisions)] {
		if err := h.delete(ctx, old.UID, old.Revision.Revision); err != nil {
			return err
		}
	}
	return nil
}

func (h *Histories) delete(ctx context.Context, machine types.UID, revision int64) error {
	err := h.storage.Delete(ctx, h.key(machine, revision), &ichor.StoredConfigRevision{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if err != nil && !storage.IsNotFound(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove a revision of a machine's configuration: %w", err)
	}
	return nil
}

// rewrite writes revisions as they are: that writes nothing, unless they are encrypted with a key that is no longer the
// first one. Source: k8s.io/apiserver, pkg/storage/etcd3/store.go, GuaranteedUpdate.
func (h *Histories) rewrite(ctx context.Context, revisions []ichor.StoredConfigRevision) error {
	for _, each := range revisions {
		err := h.storage.GuaranteedUpdate(ctx, h.key(each.UID, each.Revision.Revision), &ichor.StoredConfigRevision{}, true, nil,
			storage.SimpleUpdate(func(current runtime.Object) (runtime.Object, error) {
				if current.(*ichor.StoredConfigRevision).UID == "" {
					return nil, errGone
				}
				return current, nil
			}), nil)
		if err != nil && !errors.Is(err, errGone) {
			return fmt.Errorf("write a revision of a machine's configuration as it is: %w", err)
		}
	}
	return nil
}

// errGone ends the writing of what was removed meanwhile.
var errGone = errors.New("the revision is gone")

// remove forgets all of a machine's revisions.
func (h *Histories) remove(ctx context.Context, machine types.UID) error {
	revisions, err := h.list(ctx, machine)
	if err != nil {
		return err
	}
	for _, each := range revisions {
		if err := h.delete(ctx, machine, each.Revision.Revision); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the history of a machine that is gone. The store's hook has no context, and the machine is gone already,
// so a failure is logged and left to the sweep.
func (h *Histories) forget(obj runtime.Object, options *metav1.DeleteOptions) {
	machine, ok := obj.(*ichor.TalosMachine)
	if h == nil || !ok || options != nil && len(options.DryRun) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
	defer cancel()
	if err := h.remove(ctx, machine.UID); err != nil {
		klog.FromContext(ctx).Error(err, "The history of a deleted machine's configuration stays stored for now", "machine", machine.Name)
	}
}

// pack compresses a text.
func pack(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := io.WriteString(writer, text); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// maxUnpacked bounds what is unpacked: more than any text that is taken.
const maxUnpacked = 4 << 20

// unpack reads what pack wrote.
func unpack(packed []byte) (string, error) {
	if len(packed) == 0 {
		return "", nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("unpack a stored configuration: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(reader, maxUnpacked+1))
	if err != nil {
		return "", fmt.Errorf("unpack a stored configuration: %w", err)
	}
	if len(text) > maxUnpacked {
		return "", fmt.Errorf("unpack a stored configuration: it is larger than %d bytes", maxUnpacked)
	}
	return string(text), nil
}
