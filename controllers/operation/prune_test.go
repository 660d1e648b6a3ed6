// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestTheNewestOperationsThatHaveEndedAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 0)
	for i := range keptOperations + 3 {
		r.create(fmt.Sprintf("old-%03d", i), rebootAll)
		operation := r.operation(fmt.Sprintf("old-%03d", i))
		operation.Status.Phase = v1alpha1.OperationCancelled
		if _, err := r.api.IchorV1alpha1().TalosOperations().UpdateStatus(t.Context(), operation, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.clock.Step(time.Second)
	}
	r.create("paused", func(spec *v1alpha1.TalosOperationSpec) { rebootAll(spec); spec.Suspend = true })
	if err := r.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := r.api.IchorV1alpha1().TalosOperations().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != keptOperations+1 {
		t.Fatalf("%d are left, %v", len(list.Items), err)
	}
	for _, operation := range list.Items {
		if operation.Name < "old-003" {
			t.Errorf("%s is left, and newer ones are gone", operation.Name)
		}
	}
}
