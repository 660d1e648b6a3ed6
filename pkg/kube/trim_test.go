// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestATrimmedNodeIsSmall(t *testing.T) {
	t.Parallel()
	large := node("a", "10.0.0.1")
	large.Status.Images = []corev1.ContainerImage{{Names: []string{"etcd"}}}
	large.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	large.ResourceVersion = "7"
	got, err := TrimNode(large)
	if err != nil {
		t.Fatal(err)
	}
	want := node("a", "10.0.0.1")
	want.ResourceVersion = "7"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trimmed Node (-want +got):\n%s", diff)
	}
}

func TestManagedFieldsAreForgotten(t *testing.T) {
	t.Parallel()
	machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	got, err := TrimManagedFields(machine)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, got); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
	if _, err := TrimManagedFields("no object"); err == nil {
		t.Error("what is no object was taken for one")
	}
}
