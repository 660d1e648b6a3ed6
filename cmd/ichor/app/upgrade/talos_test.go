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

// versionedFleet is the fleet with a control plane and two workers of cluster prod that run v1.13.8, as the cluster is to have.
func versionedFleet() []metav1.Object {
	objects := apitest.Fleet()
	at := metav1.NewTime(apitest.Now)
	for _, object := range objects {
		switch object := object.(type) {
		case *v1alpha1.TalosMachine:
			if object.Name == apitest.ControlPlane {
				object.Status.Provisioning, object.Status.TalosVersion = &v1alpha1.ProvisioningStatus{AppliedAt: &at}, "v1.13.8"
			}
		case *v1alpha1.TalosCluster:
			if object.Name == "prod" {
				object.Spec.TalosVersion, object.Spec.KubernetesVersion = "v1.13.8", "v1.36.6"
			}
		}
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		objects = append(objects, &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: "object-of-" + name, Labels: map[string]string{"rack": name[len(name)-1:]}},
			Spec: v1alpha1.TalosMachineSpec{
				Hostname: name, Role: v1alpha1.RoleWorker, ApprovalState: v1alpha1.ApprovalApproved, ClusterRef: v1alpha1.ClusterReference{Name: "prod"},
			},
			Status: v1alpha1.TalosMachineStatus{Provisioning: &v1alpha1.ProvisioningStatus{AppliedAt: &at}, TalosVersion: "v1.13.8"},
		})
	}
	return objects
}

func TestUpgradeTalosMakesAnOperation(t *testing.T) {
	t.Parallel()
	upgrade := func(to string, names ...string) *v1alpha1.TalosOperationSpec {
		return &v1alpha1.TalosOperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Mode: v1alpha1.OperationModeRun,
			TalosUpgrade: &v1alpha1.TalosUpgrade{Version: to}, Machines: &v1alpha1.OperationMachines{Names: names},
		}
	}
	plan := func(spec *v1alpha1.TalosOperationSpec) *v1alpha1.TalosOperationSpec {
		spec.Mode = v1alpha1.OperationModePlan
		return spec
	}
	const one, two, three = "object-of-worker-1", "object-of-worker-2", apitest.ControlPlane
	for _, test := range []struct {
		name   string
		args   []string
		call   apitest.Call
		code   int
		says   string
		want   *v1alpha1.TalosOperationSpec
		intent string
	}{
		{"of all: the cluster is to have the version from now on", []string{"--to", "v1.13.9", "--all", "--yes"}, apitest.Call{}, 0, "gets v1.13.9 as its spec.talosVersion", upgrade("v1.13.9", three, one, two), "v1.13.9"},
		{"of all, as a person sees it", []string{"--to", "v1.13.9", "--all", "--accessible", "--wait=false"}, apitest.Call{Terminal: apitest.Person, Typed: "y\n"}, 0, "v1.13.8 → v1.13.9\n", upgrade("v1.13.9", three, one, two), "v1.13.9"},
		{"of all, but the person says no", []string{"--to", "v1.13.9", "--all", "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "\n"}, cli.ExitUsage, "Upgrade Talos on 3 machines of cluster prod, one at a time?", nil, "v1.13.8"},
		{"of one ahead of the others", []string{"--to", "v1.13.9", "worker-1"}, apitest.Call{}, 0, "ichor operation watch talos-", upgrade("v1.13.9", one), "v1.13.8"},
		{"of a selection ahead of the others", []string{"--to", "v1.13.9", "-l", "rack=2", "--yes"}, apitest.Call{}, 0, "created", upgrade("v1.13.9", two), "v1.13.8"},
		{"to what the cluster is to have", []string{"worker-1"}, apitest.Call{}, 0, "created", upgrade("", one), "v1.13.8"},
		{"as a plan", []string{"--to", "v1.13.9", "--all", "--plan", "--timeout", "1ms"}, apitest.Call{}, cli.ExitTimedOut, "operation watch talos-plan-", plan(upgrade("v1.13.9", three, one, two)), "v1.13.8"},
		{"in a dry run", []string{"--to", "v1.13.9", "--all", "--dry-run=server"}, apitest.Call{}, 0, "created (server dry run)", nil, "v1.13.8"},
		{"too far", []string{"--to", "v1.16.0", "--all", "--yes"}, apitest.Call{}, cli.ExitBlocked, "upgrade to a version in between first", nil, "v1.13.8"},
		{"back", []string{"--to", "v1.13.7", "--all", "--yes"}, apitest.Call{}, cli.ExitBlocked, "isn't taken back to an earlier version", nil, "v1.13.8"},
		{"to what doesn't run its Kubernetes", []string{"--to", "v1.12.1", "worker-1"}, apitest.Call{}, cli.ExitBlocked, "upgrade Kubernetes first", nil, "v1.13.8"},
		{"to no version", []string{"--to", "newest", "--all"}, apitest.Call{}, cli.ExitUsage, "--to: ", nil, "v1.13.8"},
		{"to no schematic", []string{"--schematic", "plain", "--all"}, apitest.Call{}, cli.ExitUsage, "--schematic: ", nil, "v1.13.8"},
		{"of nothing", nil, apitest.Call{}, cli.ExitUsage, "needs a machine, or --all, or -l", nil, "v1.13.8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, versionedFleet()...)
			var made *v1alpha1.TalosOperation
			intent := "v1.13.8"
			server.Written = func(object metav1.Object) {
				switch object := object.(type) {
				case *v1alpha1.TalosOperation:
					made = object
				case *v1alpha1.TalosCluster:
					intent = object.Spec.TalosVersion
					if made != nil {
						t.Error("the operation was made before the cluster was to have the version")
					}
				}
			}
			result := server.Call(t, test.call, append([]string{"upgrade", "talos"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			if !strings.Contains(result.Out+result.Err, test.says) {
				t.Errorf("doesn't say %q:\n%s%s", test.says, result.Out, result.Err)
			}
			var got *v1alpha1.TalosOperationSpec
			if made != nil && server.Operation(made.Name) != nil {
				got = &server.Operation(made.Name).Spec
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("operation (-want +got):\n%s", diff)
			}
			if dry := strings.Contains(test.name, "dry run"); !dry && intent != test.intent {
				t.Errorf("the cluster is to have %s, want %s", intent, test.intent)
			}
		})
	}
}
