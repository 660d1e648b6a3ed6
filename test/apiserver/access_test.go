// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

func TestUsersThatTheFrontProxyNames(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	proxied, err := versioned.NewForConfig(w.ProxyConfig(t, 0, "front-proxy", harness.Approver))
	if err != nil {
		t.Fatal(err)
	}
	got, err := proxied.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, machineUUID(0), approve(w.machines[0], v1alpha1.RoleWorker), metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("approve through the front proxy: %v", err)
	}
	if got.Spec.Approval.By != harness.Approver {
		t.Errorf("approved by %q, want the user that the proxy named", got.Spec.Approval.By)
	}
	stranger, err := versioned.NewForConfig(w.ProxyConfig(t, 0, "somebody", harness.Root, "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
		t.Errorf("a name that isn't the proxy's: %v, want a refusal", err)
	}
}

// through is a client that speaks to a server as the kube-apiserver does for a user.
func (w *world) through(t *testing.T, server int, user string) rest.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(w.ProxyConfig(t, server, "front-proxy", user))
	if err != nil {
		t.Fatal(err)
	}
	return client.IchorV1alpha1().RESTClient()
}
