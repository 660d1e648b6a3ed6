// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	listers "maesh.dev/ichor/pkg/client/listers/ichor/v1alpha1"
)

const (
	// maxConflicts is how often a status write is made anew on the object's newest version.
	maxConflicts = 8
	// cacheLag is how long the cache may lag behind what was written.
	cacheLag = time.Minute
)

// store reads and writes objects. It reads its own writes: what it wrote a moment ago the cache may not show yet, and two
// addresses of one machine would become two objects.
type store struct {
	client   versioned.Interface
	machines listers.TalosMachineLister
	now      func() time.Time

	mu     sync.Mutex
	recent map[types.UID]written
}

type written struct {
	machine *v1alpha1.TalosMachine
	at      time.Time
}

// all lists the machines, each in the newest version known here.
func (s *store) all() ([]*v1alpha1.TalosMachine, error) {
	cached, err := s.machines.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range cached {
		ours, found := s.recent[m.UID]
		switch {
		case !found:
		case newer(ours.machine, m):
			cached[i] = ours.machine
		default:
			delete(s.recent, m.UID)
		}
	}
	known := make(map[types.UID]bool, len(cached))
	for _, m := range cached {
		known[m.UID] = true
	}
	for uid, ours := range s.recent {
		switch {
		case s.now().Sub(ours.at) > cacheLag:
			delete(s.recent, uid)
		case !known[uid]:
			cached = append(cached, ours.machine)
		}
	}
	return cached, nil
}

// newer tells whether a is a later version of the object than b.
func newer(a, b *v1alpha1.TalosMachine) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// forget drops an object that is gone.
func (s *store) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recent, uid)
}

// remember keeps an object as it was written, or read past the cache.
func (s *store) remember(m *v1alpha1.TalosMachine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent[m.UID] = written{m, s.now()}
}

// create makes a machine's object.
func (s *store) create(ctx context.Context, m *v1alpha1.TalosMachine) (*v1alpha1.TalosMachine, error) {
	made, err := s.client.IchorV1alpha1().TalosMachines().Create(ctx, m, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	s.remember(made)
	return made, nil
}

// update writes a machine's status as change makes it, if that means something else than before; on a conflict it is made
// anew from the newest version. It returns nil for an object that is gone.
func (s *store) update(ctx context.Context, m *v1alpha1.TalosMachine, change func(*v1alpha1.TalosMachine)) (*v1alpha1.TalosMachine, error) {
	api := s.client.IchorV1alpha1().TalosMachines()
	uid := m.UID
	for range maxConflicts {
		next := m.DeepCopy()
		change(next)
		if equality.Semantic.DeepEqual(m.Status, next.Status) {
			return m, nil
		}
		answer, err := api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			answer, err = api.Get(ctx, m.Name, metav1.GetOptions{})
			if err == nil && answer.UID == uid {
				m = answer
				continue
			}
		}
		if apierrors.IsNotFound(err) || err == nil && answer.UID != uid {
			s.forget(uid)
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("write the status of machine %s: %w", m.Name, err)
		}
		s.remember(answer)
		return answer, nil
	}
	return nil, fmt.Errorf("write the status of machine %s: it changed %d times meanwhile", m.Name, maxConflicts)
}

// updateCluster writes a cluster's status as the changes make it, if that means something else than before.
func (s *store) updateCluster(ctx context.Context, cluster *v1alpha1.TalosCluster, changes ...func(*v1alpha1.TalosCluster)) error {
	api := s.client.IchorV1alpha1().TalosClusters()
	uid := cluster.UID
	for range maxConflicts {
		next := cluster.DeepCopy()
		for _, change := range changes {
			change(next)
		}
		if equality.Semantic.DeepEqual(cluster.Status, next.Status) {
			return nil
		}
		_, err := api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			if cluster, err = api.Get(ctx, next.Name, metav1.GetOptions{}); err == nil && cluster.UID == uid {
				continue
			}
			if err == nil {
				return nil
			}
		}
		if apierrors.IsNotFound(err) || err == nil {
			return nil
		}
		return fmt.Errorf("write the status of cluster %s: %w", next.Name, err)
	}
	return fmt.Errorf("write the status of cluster %s: it changed %d times meanwhile", cluster.Name, maxConflicts)
}
