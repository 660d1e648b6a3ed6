// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestRemove(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		args   []string
		call   apitest.Call
		code   int
		says   string
		policy v1alpha1.ClusterDeletionPolicy
	}{
		{"with machines, and without a word on them", []string{"prod"}, apitest.Call{}, cli.ExitBlocked, "say --orphan to let them go as they are, or --destroy", ""},
		{"both ways", []string{"prod", "--orphan", "--destroy"}, apitest.Call{}, cli.ExitUsage, "either --orphan or --destroy", ""},
		{"where nobody can be asked", []string{"prod", "--destroy"}, apitest.Call{}, cli.ExitUsage, "say --consent", ""},
		{"with another's name", []string{"prod", "--destroy", "--consent", "lab"}, apitest.Call{}, cli.ExitUsage, "isn't the cluster's name", ""},
		{"with its machines wiped", []string{"prod", "--destroy", "--consent", "prod"}, apitest.Call{}, 0, "IS WIPED", v1alpha1.ClusterDeletionDestroy},
		{"with its machines as they are", []string{"prod", "--orphan", "--consent", "prod"}, apitest.Call{}, 0, "Watch it with: ichor cluster show prod", v1alpha1.ClusterDeletionOrphan},
		{"by a person who types its name", []string{"prod", "--orphan", "--accessible", "--wait=false"}, apitest.Call{Terminal: apitest.Person, Typed: "prod\n"}, 0, "is being removed", v1alpha1.ClusterDeletionOrphan},
		{"by a person who types another", []string{"prod", "--destroy", "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "y\n"}, cli.ExitUsage, "nothing was changed", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			result := server.Call(t, test.call, append([]string{"cluster", "remove"}, test.args...)...)
			if result.Code != test.code || !strings.Contains(result.Out+result.Err, test.says) {
				t.Errorf("exit status %d, want %d, and to hear %q:\n%s%s", result.Code, test.code, test.says, result.Out, result.Err)
			}
			cluster := server.Cluster("prod")
			if cluster.Spec.DeletionPolicy != test.policy || (cluster.DeletionTimestamp != nil) != (test.code == 0) {
				t.Errorf("policy %q, deleted: %v", cluster.Spec.DeletionPolicy, cluster.DeletionTimestamp)
			}
			if test.policy == v1alpha1.ClusterDeletionDestroy && cluster.Spec.DeletionConsent != "prod" {
				t.Errorf("consent: %q", cluster.Spec.DeletionConsent)
			}
		})
	}
}

func TestWhatBecomesOfTheMachinesIsPutBackWhereTheDeletionIsRefused(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"--destroy", "--orphan"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			server.Refuse = func(request *http.Request, _ *v1alpha1.TalosMachine) *apierrors.StatusError {
				if request.Method != http.MethodDelete {
					return nil
				}
				return apierrors.NewForbidden(v1alpha1.Resource("talosclusters"), "prod", errors.New("machine worker-3 is locked"))
			}
			before := server.Cluster("prod").Spec
			result := server.Call(t, apitest.Call{}, "cluster", "remove", "prod", way, "--consent", "prod")
			if result.Code == 0 || !strings.Contains(result.Err, "is locked") {
				t.Errorf("exit status %d:\n%s", result.Code, result.Err)
			}
			if after := server.Cluster("prod").Spec; after.DeletionPolicy != before.DeletionPolicy || after.DeletionConsent != "" {
				t.Errorf("left behind: policy %q, consent %q", after.DeletionPolicy, after.DeletionConsent)
			}
		})
	}
}
