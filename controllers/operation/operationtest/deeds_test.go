// SPDX-License-Identifier: Apache-2.0

package operationtest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// state is a state of an operation over two machines.
type state struct {
	phase    v1alpha1.OperationPhase
	machines []v1alpha1.OperationMachineStatus
	plan     []string
}

func planOf(steps ...string) *v1alpha1.OperationPlan {
	return &v1alpha1.OperationPlan{Machines: []v1alpha1.PlannedMachine{{Name: "a", Steps: steps}, {Name: "b", Steps: steps}}}
}

func (s state) operation() *v1alpha1.TalosOperation {
	operation := &v1alpha1.TalosOperation{}
	operation.Name, operation.UID = "one", types.UID("one")
	operation.Status.Phase, operation.Status.Machines = s.phase, s.machines
	if s.plan == nil {
		s.plan = []string{"Gates", "Cordon", "Reboot", "Uncordon"}
	}
	operation.Status.Plan = planOf(s.plan...)
	return operation
}

func record(name, step string, state v1alpha1.OperationStepState) v1alpha1.OperationMachineStatus {
	return v1alpha1.OperationMachineStatus{Name: name, Step: step, State: state}
}

// through is the journal of a machine that goes through these steps, and is done.
func through(name string, others []v1alpha1.OperationMachineStatus, steps ...string) []state {
	var states []state
	for _, step := range steps {
		for _, is := range []v1alpha1.OperationStepState{v1alpha1.StepIntended, v1alpha1.StepVerified} {
			states = append(states, state{machines: append([]v1alpha1.OperationMachineStatus{record(name, step, is)}, others...)})
		}
	}
	last := record(name, steps[len(steps)-1], v1alpha1.StepVerified)
	last.Done = true
	return append(states, state{machines: append([]v1alpha1.OperationMachineStatus{last}, others...)})
}

func doneRecord(name string, left ...v1alpha1.StepsLeftOut) v1alpha1.OperationMachineStatus {
	r := record(name, "Uncordon", v1alpha1.StepVerified)
	r.Done, r.LeftOut = true, left
	return r
}

var all = []string{"Gates", "Cordon", "Reboot", "Uncordon"}

func TestPlanEqualsDeed(t *testing.T) {
	t.Parallel()
	left := v1alpha1.StepsLeftOut{Steps: []string{"Cordon", "Reboot"}, Reason: "somebody rebooted it"}
	for name, c := range map[string]struct {
		states []state
		fault  string
	}{
		"all of it": {append(through("a", nil, all...), append(through("b", []v1alpha1.OperationMachineStatus{doneRecord("a")}, all...),
			state{phase: v1alpha1.OperationSucceeded, machines: []v1alpha1.OperationMachineStatus{doneRecord("a"), doneRecord("b")}})...), ""},
		"a step that is missing": {through("a", nil, "Gates", "Cordon", "Uncordon"), "a: done was [Gates Cordon Uncordon]"},
		"steps that are told to be left out": {[]state{
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepIntended)}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepVerified)}},
			{machines: []v1alpha1.OperationMachineStatus{{Name: "a", Step: "Reboot", State: v1alpha1.StepVerified, LeftOut: []v1alpha1.StepsLeftOut{left}}}},
			{machines: []v1alpha1.OperationMachineStatus{{Name: "a", Step: "Uncordon", State: v1alpha1.StepIntended, LeftOut: []v1alpha1.StepsLeftOut{left}}}},
			{machines: []v1alpha1.OperationMachineStatus{doneRecord("a", left)}},
		}, ""},
		"for no reason": {append(through("a", nil, "Gates", "Uncordon"),
			state{machines: []v1alpha1.OperationMachineStatus{doneRecord("a", v1alpha1.StepsLeftOut{Steps: []string{"Cordon", "Reboot"}})}}), "for no reason"},
		"done, and told to be left out": {append(through("a", nil, all...),
			state{machines: []v1alpha1.OperationMachineStatus{doneRecord("a", left)}}), "Reboot was done, and is told to be left out"},
		"a step once more": {[]state{
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Cordon", v1alpha1.StepIntended)}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Cordon", v1alpha1.StepVerified)}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepIntended)}},
		}, "Cordon was done, and the machine went back to before it"},
		"gates once more": {[]state{
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepIntended)}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepVerified)}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "", "")}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepIntended)}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepVerified)}},
		}, ""},
		"without a word before": {[]state{
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Gates", v1alpha1.StepIntended)}},
			{machines: []v1alpha1.OperationMachineStatus{record("a", "Cordon", v1alpha1.StepVerified)}},
		}, "Cordon was done, and nothing was said of it before"},
		"a step that nobody planned":    {[]state{{machines: []v1alpha1.OperationMachineStatus{record("a", "Reset", v1alpha1.StepIntended)}}}, "Reset isn't planned"},
		"a machine that nobody planned": {[]state{{machines: []v1alpha1.OperationMachineStatus{record("c", "Gates", v1alpha1.StepIntended)}}}, "c isn't in its plan"},
		"another plan":                  {[]state{{plan: []string{"Gates"}}}, "its plan changed"},
		"another order": {append(through("b", nil, all...), append(through("a", []v1alpha1.OperationMachineStatus{doneRecord("b")}, all...),
			state{phase: v1alpha1.OperationSucceeded, machines: []v1alpha1.OperationMachineStatus{doneRecord("a"), doneRecord("b")}})...), "b was finished before one that comes first"},
		"a machine that wasn't done": {append(through("a", nil, all...),
			state{phase: v1alpha1.OperationSucceeded, machines: []v1alpha1.OperationMachineStatus{doneRecord("a")}}), "b isn't done, and the operation has succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d Deeds
			d.Observe(state{}.operation())
			for _, one := range c.states {
				d.Observe(one.operation())
			}
			err := d.Err()
			switch {
			case c.fault == "" && err != nil:
				t.Errorf("it says %v", err)
			case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
				t.Errorf("it says %v, want %q", err, c.fault)
			}
		})
	}
}
