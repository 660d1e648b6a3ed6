// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"strings"
	"testing"
	"time"

	"maesh.dev/ichor/test/apiserver/harness"
)

// Probes of a server whose etcd stops answering: it isn't restarted for that, and it leaves its Service only when etcd
// stays away.
func TestHealthWhileEtcdIsPaused(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t, harness.Servers(0)), testContext(t)
	etcd, options := env.PausableEtcd(t), env.Options(t)
	options.Recommended.Etcd.StorageConfig.Transport.ServerList = []string{etcd.Endpoint}
	options.EtcdTolerance = 3 * time.Second
	server := env.Serve(t, options, harness.Run)
	w := &world{Env: env, admin: env.Client(t, server, harness.Admin)}
	// Nobody authenticates for a probe.
	probe := func(path string) error {
		config := env.Config(server, "")
		config.Timeout = 20 * time.Second
		return clientOf(t, config).Get().AbsPath(path).Do(ctx).Error()
	}
	if err := probe("/readyz"); err != nil {
		t.Fatalf("ready, before: %v", err)
	}
	etcd.Pause()
	tolerated := 0
	eventually(t, "a server without etcd isn't ready", func() bool {
		if err := probe("/livez"); err != nil {
			t.Errorf("live, without etcd: %v", err)
		}
		err := probe("/readyz")
		if err == nil {
			tolerated++
		} else if !strings.Contains(err.Error(), "etcd failed") {
			t.Errorf("readiness doesn't name etcd: %v", err)
		}
		return err != nil
	})
	if tolerated == 0 {
		t.Error("the first moment without etcd made the server unready")
	}
	if body, err := w.raw(t).Get().AbsPath("/livez").Param("verbose", "").Do(ctx).Raw(); err != nil || strings.Contains(string(body), "etcd") {
		t.Errorf("liveness looks at etcd: %v\n%s", err, body)
	}
	etcd.Resume()
	eventually(t, "a server whose etcd is back is ready", func() bool { return probe("/readyz") == nil })
}

// A right that is taken from a running server is named by its readiness, and costs it nothing else.
func TestWhatReadinessConsistsOf(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	w := &world{Env: env, admin: env.Client(t, 0, harness.Admin)}
	body, err := w.raw(t).Get().AbsPath("/readyz").Param("verbose", "").Do(ctx).Raw()
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []string{"etcd", "ichor-rights", "ichor-trust", "informer-sync", "shutdown"} {
		if !strings.Contains(string(body), "[+]"+check+" ok") {
			t.Errorf("readiness has no check %s:\n%s", check, body)
		}
	}
}
