// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestShutdownMakesAnOperation(t *testing.T) {
	t.Parallel()
	some := &v1alpha1.TalosOperationSpec{
		ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Mode: v1alpha1.OperationModeRun,
		Shutdown: &v1alpha1.Shutdown{}, Machines: &v1alpha1.OperationMachines{Names: []string{"object-of-worker-1"}},
	}
	whole := &v1alpha1.TalosOperationSpec{
		ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Mode: v1alpha1.OperationModeRun, Shutdown: &v1alpha1.Shutdown{Consent: "prod"},
	}
	for name, test := range map[string]struct {
		args []string
		code int
		says string
		want *v1alpha1.TalosOperationSpec
	}{
		"of a machine":                          {[]string{"worker-1"}, 0, "created", some},
		"of the whole cluster":                  {[]string{"--all", "--cluster", "prod", "--consent", "prod", "--yes"}, 0, "created", whole},
		"of the whole cluster without its name": {[]string{"--all", "--cluster", "prod", "--yes"}, cli.ExitUsage, "say --consent prod", nil},
		"of another cluster than was named":     {[]string{"--all", "--cluster", "prod", "--consent", "lab", "--yes"}, cli.ExitUsage, "say --consent prod", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, runningFleet()...)
			var got *v1alpha1.TalosOperationSpec
			server.Written = func(object metav1.Object) {
				if operation, ok := object.(*v1alpha1.TalosOperation); ok {
					got = &operation.Spec
				}
			}
			result := server.Call(t, apitest.Call{}, append([]string{"machine", "shutdown"}, test.args...)...)
			if result.Code != test.code || !strings.Contains(result.Out+result.Err, test.says) {
				t.Errorf("exit status %d, want %d:\n%s%s", result.Code, test.code, result.Out, result.Err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("operation (-want +got):\n%s", diff)
			}
		})
	}
}
