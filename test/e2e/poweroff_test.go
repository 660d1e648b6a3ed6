// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/localstack"
)

// poweredOff powers a worker off. Wherever a person looks it is said that this was meant, until somebody powers it on.
func poweredOff(t *testing.T, s *suite) {
	worker := s.newcomer(t, workerFromLater)
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: "night"}}
	operation.Spec.ClusterRef.Name, operation.Spec.Shutdown = localstack.ClusterName, &v1alpha1.Shutdown{}
	operation.Spec.Machines = &v1alpha1.OperationMachines{Names: []string{worker.Name}}
	if _, err := s.operator.IchorV1alpha1().TalosOperations().Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.powerOn(t, s.hardware(t, worker)) })
	s.succeeds(t, operation.Name, 1)
	if console := s.console(t, worker); console.Powered {
		t.Errorf("the machine has power: %+v", console)
	}
	eventually(t, 2*time.Minute, func() error {
		conditions := s.get(t, worker.Name).Status.Conditions
		for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionReady} {
			if is := condition(conditions, kind); is.Reason != v1alpha1.ReasonPoweredOff || !strings.Contains(is.Message, "powered off by operation night") {
				return fmt.Errorf("%s says %s: %s", kind, is.Reason, is.Message)
			}
		}
		return nil
	})
	if says := s.must(t, s.stack.Dir().Kubeconfig(), "ichor", "status"); !strings.Contains(says, "powered off by operation night") {
		t.Errorf("ichor status says\n%s", says)
	}
	s.powerOn(t, s.hardware(t, worker))
	s.waitReady(t, 3*time.Minute, worker.Name)
	if off := meta.FindStatusCondition(s.get(t, worker.Name).Status.Conditions, v1alpha1.ConditionPoweredOff); off != nil {
		t.Errorf("the machine runs, and says %+v", off)
	}
	s.expectSchedulable(t, worker)
}
