// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor-apiserver/app"
	"maesh.dev/ichor/test/apiserver/harness"
)

func TestAnEmbeddedEtcdKeepsWhatIsStored(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"a short path":                         filepath.Join(t.TempDir(), "etcd"),
		"a path longer than a socket's may be": filepath.Join(t.TempDir(), strings.Repeat("long", 30), "etcd"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, ctx := harness.Start(t, harness.Servers(0)), testContext(t)
			start := func() int {
				options := env.Options(t)
				options.Recommended.Etcd.StorageConfig.Transport.ServerList, options.EtcdEmbeddedDir = nil, dir
				return env.Serve(t, options, app.Run)
			}
			first := start()
			made, err := env.Client(t, first, harness.Admin).IchorV1alpha1().TalosClusters().Create(ctx, cluster(3), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("directory of etcd: %v, %v; want one that others can't enter", info, err)
			}
			if err := env.Stop(first); err != nil {
				t.Fatalf("stop: %v", err)
			}
			got, err := env.Client(t, start(), harness.Admin).IchorV1alpha1().TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
			if err != nil || got.UID != made.UID {
				t.Errorf("after a restart: %v, %v; want the cluster that was made", got, err)
			}
		})
	}
}
