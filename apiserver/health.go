// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/utils/clock"
)

// defaultEtcdTolerance is how long etcd may be away before the server says that it isn't ready. A leader election takes a few
// seconds; if each one took all replicas from their Service, a hiccup of etcd would be an outage of the API.
const defaultEtcdTolerance = 15 * time.Second

// addEtcdCheck makes readiness, and not liveness, depend on etcd: a restart of the server heals nothing in etcd.
func addEtcdCheck(config *genericapiserver.Config, storage storagebackend.Config, tolerance time.Duration) error {
	ready, err := storagefactory.CreateReadyCheck(storage, config.DrainedNotify())
	if err != nil {
		return err
	}
	check := &tolerantCheck{check: ready, tolerance: tolerance, clock: clock.RealClock{}}
	config.AddReadyzChecks(healthz.NamedCheck("etcd", func(*http.Request) error { return check.run() }))
	return nil
}

// tolerantCheck fails when the check within has failed for longer than it tolerates, or has never succeeded.
type tolerantCheck struct {
	check     func() error
	tolerance time.Duration
	clock     clock.PassiveClock

	mu   sync.Mutex
	good time.Time
}

func (t *tolerantCheck) run() error {
	err := t.check()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if err == nil {
		t.good = now
		return nil
	}
	if !t.good.IsZero() && now.Sub(t.good) <= t.tolerance {
		return nil
	}
	return err
}
