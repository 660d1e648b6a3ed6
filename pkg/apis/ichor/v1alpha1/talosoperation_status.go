// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OperationPhase sums up where an operation is.
type OperationPhase string

// The phases of an operation. Succeeded, Failed and Cancelled are final.
const (
	// OperationPending was created and is yet to be looked at.
	OperationPending OperationPhase = "Pending"
	// OperationQueued waits for another operation of the cluster.
	OperationQueued OperationPhase = "Queued"
	// OperationWaiting waits for a gate or a window.
	OperationWaiting OperationPhase = "Waiting"
	// OperationRunning works on a machine.
	OperationRunning OperationPhase = "Running"
	// OperationPaused was stopped by a failure or by suspend, and waits for a person.
	OperationPaused OperationPhase = "Paused"
	// OperationSucceeded is done.
	OperationSucceeded OperationPhase = "Succeeded"
	// OperationFailed can't be done.
	OperationFailed OperationPhase = "Failed"
	// OperationCancelled was ended by a person.
	OperationCancelled OperationPhase = "Cancelled"
)

// TalosOperationStatus is the plan of an operation and how far it got.
type TalosOperationStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is Pending, Queued, Waiting, Running, Paused, Succeeded, Failed or Cancelled.
	// +optional
	Phase OperationPhase `json:"phase,omitempty"`
	// conditions say how the operation is: Planned, Progressing, Complete, Failed, Suspended, and of an upgrade RolledBack.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// message says for people what happens now, or what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
	// plan is what is to be done, in order.
	// +optional
	Plan *OperationPlan `json:"plan,omitempty"`
	// machines are the machines of the plan with the step that each is at, in the plan's order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Machines []OperationMachineStatus `json:"machines,omitempty"`
	// current is the name of the TalosMachine that is worked on; empty if none is.
	// +optional
	Current string `json:"current,omitempty"`
	// done is how many machines are done.
	// +optional
	Done int32 `json:"done,omitempty"`
	// total is how many machines there are in the plan.
	// +optional
	Total int32 `json:"total,omitempty"`
	// handledResumeRequests is the spec.control.resumeRequests that were acted upon.
	// +optional
	HandledResumeRequests int64 `json:"handledResumeRequests,omitempty"`
	// startedAt is when the first step began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// finishedAt is when the operation got to its final phase.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// OperationPlan is what an operation will do.
type OperationPlan struct {
	// at is when the plan was made.
	At metav1.Time `json:"at"`
	// from is the version that it leads from, where it is about versions.
	// +optional
	From string `json:"from,omitempty"`
	// to is the version that it leads to, where it is about versions.
	// +optional
	To string `json:"to,omitempty"`
	// machines are the machines in the order in which they are done, each with its steps.
	// +optional
	// +listType=map
	// +listMapKey=name
	Machines []PlannedMachine `json:"machines,omitempty"`
	// checks are what was looked at before the start, and what came of it.
	// +optional
	// +listType=map
	// +listMapKey=name
	Checks []OperationCheck `json:"checks,omitempty"`
	// risks are what a person should know before it starts.
	// +optional
	// +listType=atomic
	Risks []string `json:"risks,omitempty"`
}

// PlannedMachine is one machine of a plan.
type PlannedMachine struct {
	// name of the TalosMachine.
	Name string `json:"name"`
	// steps in their order, for instance Gates, Cordon, Drain, Install, Reboot, Verify, Uncordon.
	// +optional
	// +listType=atomic
	Steps []string `json:"steps,omitempty"`
	// image is the installer image that the machine is to get, where another version of Talos is installed.
	// +optional
	Image string `json:"image,omitempty"`
}

// CheckResult is what came of a check.
type CheckResult string

const (
	// CheckPassed is as it should be.
	CheckPassed CheckResult = "Passed"
	// CheckWarned is worth a look and stops nothing.
	CheckWarned CheckResult = "Warned"
	// CheckFailed stops the operation before it begins.
	CheckFailed CheckResult = "Failed"
)

// OperationCheck is one check before the start.
type OperationCheck struct {
	// name of the check.
	Name string `json:"name"`
	// result is Passed, Warned or Failed.
	Result CheckResult `json:"result"`
	// message says what was found, and what to do about it.
	// +optional
	Message string `json:"message,omitempty"`
}

// OperationStepState is how far a step is. Written before and after the act, so that a restart knows where it was.
type OperationStepState string

const (
	// StepIntended is about to be done, or was done without a word of it.
	StepIntended OperationStepState = "Intended"
	// StepActed was done, and is yet to be verified.
	StepActed OperationStepState = "Acted"
	// StepVerified is done.
	StepVerified OperationStepState = "Verified"
	// StepFailed went wrong.
	StepFailed OperationStepState = "Failed"
)

// OperationMachineStatus is how far a machine is.
type OperationMachineStatus struct {
	// name of the TalosMachine.
	Name string `json:"name"`
	// step is the step that it is at; empty before the first.
	// +optional
	Step string `json:"step,omitempty"`
	// state of the step: Intended, Acted, Verified or Failed.
	// +optional
	State OperationStepState `json:"state,omitempty"`
	// message says what happens, what it waits for, or what went wrong and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// cordoned says that Ichor cordoned the node, and so is to uncordon it.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`
	// bootID is the machine's boot id before the step, by which a reboot is noticed.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// configHash is the SHA-256 of the configuration that was left with the machine for its next boot.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// at is when the step got into its state.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// startedAt is when the machine was begun.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// finishedAt is when it was done.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// done says that nothing is left to do on the machine.
	// +optional
	Done bool `json:"done,omitempty"`
	// leftOut are steps of the plan that weren't done on the machine, with the reason. All others before the one that it is at
	// were done, in the plan's order.
	// +optional
	// +listType=atomic
	LeftOut []StepsLeftOut `json:"leftOut,omitempty"`
}

// StepsLeftOut are steps of a plan that weren't done.
type StepsLeftOut struct {
	// steps in the plan's order.
	// +listType=atomic
	Steps []string `json:"steps"`
	// reason says for people why they weren't done.
	Reason string `json:"reason"`
}
