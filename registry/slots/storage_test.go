// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// modelStorage is etcd and the library's storage on it, below the real registry: linearizable reads, compare-and-swap
// on one key, reads from a cache of any age. Versions count the writes of one object from 1, so that those of a namesake
// repeat: the protocol gets less to lean on than etcd's revisions give, and states that differ in nothing else are one.
type modelStorage struct {
	storage.Interface // the methods that no code under test calls
	w                 *world
}

// GetRESTOptions makes every resource live in the world.
func (w *world) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{GroupResource: resource, Config: storagebackend.Config{Codec: w.codec}},
		ResourcePrefix: resource.Resource, EnableGarbageCollection: true, DeleteCollectionWorkers: 1,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
			storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return modelStorage{w: w}, func() {}, nil
		},
	}, nil
}

// Versioner is the library's.
func (modelStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// ReadinessCheck is never asked.
func (modelStorage) ReadinessCheck() error { return nil }

// Get reads one key.
func (s modelStorage) Get(_ context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	cached := opts.ResourceVersion != "" && s.w.current != nil
	read := step{text: "reads " + short(key), key: key, cached: cached}
	if cached {
		read.text += " from a cache"
	}
	m, err := s.w.turn(read)
	if err != nil {
		return err
	}
	object := s.w.objects[key]
	if cached {
		object = s.w.history[key][m.version]
	}
	s.w.told(key + describe(object))
	if object == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	return assign(out, object)
}

// GetList reads all keys of a kind.
func (s modelStorage) GetList(_ context.Context, prefix string, _ storage.ListOptions, out runtime.Object) error {
	if _, err := s.w.turn(step{text: "lists " + short(prefix), key: prefix}); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(s.w.objects)) {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		object := s.w.objects[key]
		s.w.told(key + describe(object))
		switch list := out.(type) {
		case *ichor.TalosMachineList:
			list.Items = append(list.Items, *object.DeepCopyObject().(*ichor.TalosMachine))
		case *ichor.TalosClusterList:
			list.Items = append(list.Items, *object.DeepCopyObject().(*ichor.TalosCluster))
		default:
			return fmt.Errorf("list into %T", out)
		}
	}
	return nil
}

// Create writes a key that isn't there.
func (s modelStorage) Create(_ context.Context, key string, obj, out runtime.Object, _ uint64) error {
	m, err := s.w.turn(step{text: "creates " + short(key), key: key, write: true})
	if err != nil {
		return err
	}
	s.w.told(fmt.Sprint("exists ", s.w.objects[key] != nil))
	if s.w.objects[key] != nil {
		return storage.NewKeyExistsError(key, 0)
	}
	s.w.put(key, obj)
	return s.answer(m, key, out)
}

// GuaranteedUpdate is one step as long as the change itself asks the storage for nothing: whoever comes between its read
// and its write makes it read again, which is as if it had read later.
func (s modelStorage) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, _ bool, preconditions *storage.Preconditions,
	change storage.UpdateFunc, _ runtime.Object,
) error {
	update := step{text: "updates " + short(key), key: key, write: true}
	return s.swap(key, update, func(current runtime.Object) (func(), error) {
		if err := preconditions.Check(key, current); err != nil {
			return nil, err
		}
		changed, _, err := change(current.DeepCopyObject(), storage.ResponseMeta{ResourceVersion: versionOf(current)})
		if err != nil {
			return nil, err
		}
		return func() { s.w.put(key, changed) }, nil
	}, out)
}

// Delete removes a key, in the same way.
func (s modelStorage) Delete(_ context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	return s.swap(key, step{text: "deletes " + short(key), key: key, write: true}, func(current runtime.Object) (func(), error) {
		if err := preconditions.Check(key, current); err != nil {
			return nil, err
		}
		if err := validate(context.Background(), current.DeepCopyObject()); err != nil {
			return nil, err
		}
		return func() {
			if err := assign(out, current); err != nil {
				panic(err)
			}
			s.w.remove(key)
		}, nil
	}, nil)
}

// swap is compare-and-swap with what is decided on the object that was read, again for each that came between.
func (s modelStorage) swap(key string, write step, decide func(runtime.Object) (func(), error), out runtime.Object) error {
	m, err := s.w.turn(write)
	if err != nil {
		return err
	}
	for {
		current := s.w.objects[key]
		s.w.told(key + describe(current))
		if current == nil {
			return storage.NewKeyNotFoundError(key, 0)
		}
		before := s.w.stepsOfCurrent()
		apply, err := decide(current)
		if err != nil {
			return err
		}
		if s.w.stepsOfCurrent() != before {
			if m, err = s.w.turn(write); err != nil {
				return err
			}
		}
		if s.w.objects[key] != current {
			continue
		}
		apply()
		return s.answer(m, key, out)
	}
}

func (s modelStorage) answer(m move, key string, out runtime.Object) error {
	if m.outcome == lost {
		s.w.told("lost")
		return errTimeout
	}
	if out == nil {
		return nil
	}
	return assign(out, s.w.objects[key])
}

// put stores an object under the next version.
func (w *world) put(key string, object runtime.Object) {
	object = object.DeepCopyObject()
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	next := uint64(1)
	if before := w.objects[key]; before != nil {
		next = versionOf(before) + 1
	}
	accessor.SetResourceVersion(strconv.FormatUint(next, 10))
	w.stored(key, object)
}

func (w *world) remove(key string) { w.stored(key, nil) }

// stored notes the write. Objects with the same description are one, so that a swap can compare them.
func (w *world) stored(key string, object runtime.Object) {
	if object == nil {
		delete(w.objects, key)
	} else {
		text := key + describe(object)
		if w.interned[text] == nil {
			w.interned[text] = object
		}
		object = w.interned[text]
		w.objects[key] = object
	}
	if len(w.history[key]) == 0 {
		w.history[key] = []runtime.Object{nil} // a cache may be as old as the world
	}
	w.history[key] = append(slices.Clone(w.history[key]), object)
	w.changes = append(w.changes, change{key, object})
}

func (w *world) stepsOfCurrent() int {
	if w.current == nil {
		return 0
	}
	return w.current.steps
}

func versionOf(object runtime.Object) uint64 {
	version, err := storage.APIObjectVersioner{}.ObjectResourceVersion(object)
	if err != nil {
		panic(err)
	}
	return version
}

func assign(out, object runtime.Object) error {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
	return nil
}

func short(key string) string { return strings.TrimPrefix(key, "/") }
