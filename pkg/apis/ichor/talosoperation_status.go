// SPDX-License-Identifier: Apache-2.0

package ichor

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
	ObservedGeneration int64
	// phase is Pending, Queued, Waiting, Running, Paused, Succeeded, Failed or Cancelled.
	Phase OperationPhase
	// conditions say how the operation is: Planned, Progressing, Complete, Failed, Suspended, and of an upgrade RolledBack.
	Conditions []metav1.Condition
	// message says for people what happens now, or what it waits for.
	Message string
	// plan is what is to be done, in order.
	Plan *OperationPlan
	// machines are the machines of the plan with the step that each is at, in the plan's order.
	Machines []OperationMachineStatus
	// current is the name of the TalosMachine that is worked on; empty if none is.
	Current string
	// done is how many machines are done.
	Done int32
	// total is how many machines there are in the plan.
	Total int32
	// handledResumeRequests is the spec.control.resumeRequests that were acted upon.
	HandledResumeRequests int64
	// startedAt is when the first step began.
	StartedAt *metav1.Time
	// finishedAt is when the operation got to its final phase.
	FinishedAt *metav1.Time
}

// OperationPlan is what an operation will do.
type OperationPlan struct {
	// at is when the plan was made.
	At metav1.Time
	// from is the version that it leads from, where it is about versions.
	From string
	// to is the version that it leads to, where it is about versions.
	To string
	// machines are the machines in the order in which they are done, each with its steps.
	Machines []PlannedMachine
	// checks are what was looked at before the start, and what came of it.
	Checks []OperationCheck
	// risks are what a person should know before it starts.
	Risks []string
}

// PlannedMachine is one machine of a plan.
type PlannedMachine struct {
	// name of the TalosMachine.
	Name string
	// steps in their order, for instance Gates, Cordon, Drain, Install, Reboot, Verify, Uncordon.
	Steps []string
	// image is the installer image that the machine is to get, where another version of Talos is installed.
	Image string
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
	Name string
	// result is Passed, Warned or Failed.
	Result CheckResult
	// message says what was found, and what to do about it.
	Message string
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
	Name string
	// step is the step that it is at; empty before the first.
	Step string
	// state of the step: Intended, Acted, Verified or Failed.
	State OperationStepState
	// message says what happens, what it waits for, or what went wrong and what to do.
	Message string
	// cordoned says that Ichor cordoned the node, and so is to uncordon it.
	Cordoned bool
	// bootID is the machine's boot id before the step, by which a reboot is noticed.
	BootID string
	// configHash is the SHA-256 of the configuration that was left with the machine for its next boot.
	ConfigHash string
	// at is when the step got into its state.
	At *metav1.Time
	// startedAt is when the machine was begun.
	StartedAt *metav1.Time
	// finishedAt is when it was done.
	FinishedAt *metav1.Time
	// done says that nothing is left to do on the machine.
	Done bool
	// leftOut are steps of the plan that weren't done on the machine, with the reason. All others before the one that it is at
	// were done, in the plan's order.
	LeftOut []StepsLeftOut
}

// StepsLeftOut are steps of a plan that weren't done.
type StepsLeftOut struct {
	// steps in the plan's order.
	Steps []string
	// reason says for people why they weren't done.
	Reason string
}
