// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// An operation that holds the cluster keeps control planes from being configured, but for the one whose configuration it is
// changing, while it is at that.
func TestAControlPlaneIsConfiguredForTheOperationThatHoldsTheCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step    string
		state   v1alpha1.OperationStepState
		machine func(own string) string
		claim   string
		applied bool
	}{
		"its component is being moved on":           {v1alpha1.StepKubeAPIServer, v1alpha1.StepActed, itself, "upgrade-uid", true},
		"its kubelet is about to be":                {v1alpha1.StepKubelet, v1alpha1.StepIntended, itself, "upgrade-uid", true},
		"it is drained":                             {"Drain", v1alpha1.StepIntended, itself, "upgrade-uid", false},
		"its component was moved on":                {v1alpha1.StepKubeAPIServer, v1alpha1.StepVerified, itself, "upgrade-uid", false},
		"the step failed":                           {v1alpha1.StepKubeAPIServer, v1alpha1.StepFailed, itself, "upgrade-uid", false},
		"another machine's component is":            {v1alpha1.StepKubeAPIServer, v1alpha1.StepActed, func(string) string { return "other" }, "upgrade-uid", false},
		"another operation of the name held it too": {v1alpha1.StepKubeAPIServer, v1alpha1.StepActed, itself, "another-uid", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			machine := s.add(11, controlPlane)
			s.settle(machine)
			s.live(machine)
			operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: "upgrade", UID: "upgrade-uid"}}
			operation.Status.Machines = []v1alpha1.OperationMachineStatus{{Name: c.machine(machine), Step: c.step, State: c.state}}
			if _, err := s.api.IchorV1alpha1().TalosOperations().Create(context.Background(), operation, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			s.changeCluster(func(cluster *v1alpha1.TalosCluster) {
				cluster.Status.ActiveOperation = &v1alpha1.ActiveOperation{Name: "upgrade", UID: "another-uid"}
				if c.claim == "upgrade-uid" {
					cluster.Status.ActiveOperation.UID = "upgrade-uid"
				}
			})
			s.changeMachine(machine, func(m *v1alpha1.TalosMachine) { m.Status.SettledVersions.KubeAPIServer = "v1.36.7" })
			s.mustReconcile(machine)
			applied := s.machines[machine].Snapshot().Applied
			if got := bytes.Contains(applied[len(applied)-1], []byte("kube-apiserver:v1.36.7")); got != c.applied {
				t.Errorf("the machine got the version: %t, want %t: %+v", got, c.applied, find(s.get(machine), v1alpha1.ConditionConfigApplied))
			}
		})
	}
}

func itself(own string) string { return own }

// The versions that a machine is to have are changed by operations: what a machine was told doesn't take them back.
func TestTheOutcomeOfAnApplyKeepsVersionsThatAnOperationSettledMeanwhile(t *testing.T) {
	t.Parallel()
	was := &v1alpha1.TalosMachine{}
	was.Status.SettledVersions = &v1alpha1.SettledVersions{Kubernetes: "v1.36.4"}
	from, to := was.DeepCopy(), was.DeepCopy()
	to.Status.SettledVersions.KubeAPIServer = "v1.36.7"
	carryOutcome(was, from, to)
	if to.Status.SettledVersions.KubeAPIServer != "v1.36.7" {
		t.Error("the version that an operation settled was taken back")
	}
	from.Status.SettledVersions = nil
	carryOutcome(was, from, to)
	if to.Status.SettledVersions != nil {
		t.Error("versions that this look took away are still there")
	}
}
