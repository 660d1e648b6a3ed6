// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

func TestAccessToAFleetIsAskedAboutOnce(t *testing.T) {
	t.Parallel()
	const machines = 10
	w, ctx := newWorld(t, 1, machines), testContext(t)
	proxied, err := versioned.NewForConfig(w.ProxyConfig(t, 0, "front-proxy", harness.Approver))
	if err != nil {
		t.Fatal(err)
	}
	before := w.Kube.AccessReviews()
	for n, seen := range w.machines {
		if _, err := proxied.IchorV1alpha1().TalosMachines().Get(ctx, seen.Name, metav1.GetOptions{}); err != nil {
			t.Fatalf("get machine %d: %v", n, err)
		}
		if _, err := proxied.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, seen.Name, approve(seen, v1alpha1.RoleWorker), metav1.UpdateOptions{}); err != nil {
			t.Fatalf("approve machine %d: %v", n, err)
		}
	}
	// To get, to update talosmachines/approval, to approve: each is asked anew when the answer has been kept for 10 s.
	if asked := w.Kube.AccessReviews() - before; asked >= machines {
		t.Errorf("the kube-apiserver was asked %d times about %d machines through the front proxy", asked, machines)
	}
	before = w.Kube.AccessReviews()
	for n, seen := range w.machines {
		if _, err := w.Client(t, 0, harness.ApproverOfOne+seen.Name).IchorV1alpha1().TalosMachines().Get(ctx, seen.Name, metav1.GetOptions{}); err != nil {
			t.Fatalf("get machine %d: %v", n, err)
		}
	}
	if asked := w.Kube.AccessReviews() - before; asked < machines {
		t.Errorf("the kube-apiserver was asked %d times about %d machines of other users, straight", asked, machines)
	}
	other, err := versioned.NewForConfig(w.ProxyConfig(t, 0, "front-proxy", harness.Writer))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, w.machines[0].Name, approve(w.machines[0], v1alpha1.RoleWorker), metav1.UpdateOptions{}); !hasCause(err, "MissingVerb") {
		t.Errorf("approval through the front proxy without the verb: %v", err)
	}
}
