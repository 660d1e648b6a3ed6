// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestUpgradeKubernetesMakesAnOperation(t *testing.T) {
	t.Parallel()
	upgrade := func(to string, names ...string) *v1alpha1.TalosOperationSpec {
		return &v1alpha1.TalosOperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Mode: v1alpha1.OperationModeRun,
			KubernetesUpgrade: &v1alpha1.KubernetesUpgrade{Version: to}, Machines: &v1alpha1.OperationMachines{Names: names},
		}
	}
	for name, test := range map[string]struct {
		args   []string
		code   int
		says   string
		want   *v1alpha1.TalosOperationSpec
		intent string
	}{
		"of all: the cluster is to have the version from now on": {
			[]string{"--to", "v1.36.7", "--all", "--yes"}, 0, "gets v1.36.7 as its spec.kubernetesVersion", upgrade("v1.36.7", apitest.ControlPlane, "object-of-worker-1", "object-of-worker-2"), "v1.36.7",
		},
		"of one":                    {[]string{"--to", "v1.36.7", "worker-1"}, 0, "created", upgrade("v1.36.7", "object-of-worker-1"), "v1.36.6"},
		"in a dry run":              {[]string{"--to", "v1.36.7", "--all", "--dry-run=server"}, 0, "created (server dry run)", nil, "v1.36.6"},
		"back":                      {[]string{"--to", "v1.36.2", "--all", "--yes"}, cli.ExitBlocked, "can't be taken back", nil, "v1.36.6"},
		"to what Talos doesn't run": {[]string{"--to", "v1.37.0", "--all", "--yes"}, cli.ExitBlocked, "upgrade Talos first", nil, "v1.36.6"},
		"to no version":             {[]string{"--to", "newest", "--all"}, cli.ExitUsage, "--to: ", nil, "v1.36.6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, versionedFleet()...)
			var got *v1alpha1.TalosOperationSpec
			intent, dry := "v1.36.6", strings.Contains(name, "dry run")
			server.Written = func(object metav1.Object) {
				switch object := object.(type) {
				case *v1alpha1.TalosOperation:
					if !dry {
						got = &object.Spec
					}
				case *v1alpha1.TalosCluster:
					if !dry {
						intent = object.Spec.KubernetesVersion
					}
					if got != nil {
						t.Error("the operation was made before the cluster was to have the version")
					}
				}
			}
			result := server.Call(t, apitest.Call{}, append([]string{"upgrade", "kubernetes"}, test.args...)...)
			if result.Code != test.code || !strings.Contains(result.Out+result.Err, test.says) {
				t.Errorf("exit status %d, want %d:\n%s%s", result.Code, test.code, result.Out, result.Err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("operation (-want +got):\n%s", diff)
			}
			if intent != test.intent {
				t.Errorf("the cluster is to have %s, want %s", intent, test.intent)
			}
		})
	}
}
