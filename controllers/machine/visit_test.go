// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestTheOutcomeIsKeptWhenTheSearchWritesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault  talostest.Fault
		status metav1.ConditionStatus
		reason string
	}{
		"it was taken":   {talostest.NoFault, metav1.ConditionTrue, v1alpha1.ReasonApplied},
		"it was refused": {talostest.Refuse, metav1.ConditionFalse, v1alpha1.ReasonRefusedByMachine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11)
			s.machines[machine].Do(func(state *talostest.State) { state.Fault = tc.fault })
			writes := 0
			s.api.PrependReactor("update", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
				// The first write is what is intended, the second the outcome: by then the object has moved on, twice.
				if writes++; writes != 2 && writes != 3 {
					return false, nil, nil
				}
				// Past the client, which is held while it answers.
				stored, err := s.api.Tracker().Get(action.GetResource(), "", machine)
				if err != nil {
					return true, nil, err
				}
				m := stored.(*v1alpha1.TalosMachine).DeepCopy()
				m.Status.Addresses = append(m.Status.Addresses, "10.0.0.77")
				if err := s.api.Tracker().Update(action.GetResource(), m, ""); err != nil {
					return true, nil, err
				}
				return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), machine, errors.New("moved on"))
			})
			m := s.mustReconcile(machine)
			wantCondition(t, m, v1alpha1.ConditionConfigApplied, tc.status, tc.reason)
			if want := []string{"10.0.0.11", "10.0.0.77", "10.0.0.77"}; !cmp.Equal(m.Status.Addresses, want) {
				t.Errorf("what the search wrote is lost: %v", m.Status.Addresses)
			}
			if applied := m.Status.Provisioning.AppliedAt != nil; applied != (tc.fault == talostest.NoFault) {
				t.Errorf("record %+v", m.Status.Provisioning)
			}
		})
	}
	t.Run("but what was decided on an older version is not", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		machine := s.add(11)
		s.api.PrependReactor("update", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), machine, errors.New("moved on"))
		})
		if _, err := s.reconcile(machine); !apierrors.IsConflict(err) || s.applies(machine) != 0 {
			t.Errorf("error %v, configurations %d", err, s.applies(machine))
		}
	})
}
