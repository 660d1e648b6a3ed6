// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// What is done on a machine is its part of the plan, in the plan's order. Whatever isn't done after all is told in its
// record, with the reason, so that the plan and the record together are what was done.

// maxReason bounds the words that are kept of a step that failed.
const maxReason = 512

// leaveOut writes down that steps aren't done.
func leaveOut(record *v1alpha1.OperationMachineStatus, steps []string, why string) {
	if len(steps) > 0 {
		record.LeftOut = append(record.LeftOut, v1alpha1.StepsLeftOut{Steps: slices.Clone(steps), Reason: why})
	}
}

// ahead are the steps that a machine has before it, with the one that it is at unless that is done.
func ahead(record *v1alpha1.OperationMachineStatus, planned []string) []string {
	at := slices.Index(planned, record.Step)
	if at >= 0 && record.State == v1alpha1.StepVerified {
		at++
	}
	return planned[max(at, 0):]
}

// upTo are the first of some steps, with the last one named; none if it isn't among them.
func upTo(steps []string, last string) []string { return steps[:slices.Index(steps, last)+1] }

// cut writes down what a cancelled operation doesn't do any more on the machine that it is at: all but what puts back what was
// put aside.
func (r *run) cut(record *v1alpha1.OperationMachineStatus, planned []string) {
	left := ahead(record, planned)
	if back := slices.Index(left, stepUncordon); back >= 0 && !r.kind().harmless(record.Step) {
		left = left[:back]
	}
	why := "cancelled by " + r.op.Spec.Control.By
	if record.State == v1alpha1.StepFailed {
		why += fmt.Sprintf(", when %s had failed: %.*s", record.Step, maxReason, record.Message)
	}
	leaveOut(record, left, why)
}
