// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/bench/report"
	"maesh.dev/ichor/test/localstack"
)

// What is aimed at.
const (
	// atMostRolling is the time of a rolling reboot, in terms of what the machines take by themselves.
	atMostRolling = 1.1
	// atMostGrowth is the controller's memory after many operations, in terms of what it was after the first hundred.
	atMostGrowth = 1.2
)

// settled is how many operations are there before memory is compared: as many as are kept.
const settled = 100

// controllerProgram is the controller, as cpuTimes calls it.
const controllerProgram = "ichor-controller"

// operationFigures are what was measured of operations.
type operationFigures struct {
	rolling time.Duration
	steps   int
	cpu     map[string]time.Duration
	// plans is how long all of them took; before and after are the controller's memory in MiB.
	plans         time.Duration
	before, after float64
}

func (f operationFigures) rows(s settings) []report.Row {
	rows := []report.Row{
		report.Compare(fmt.Sprintf("a rolling reboot of %d workers; peer: their own reboots", s.machines), f.rolling.Seconds(), s.ownRolling().Seconds(), "s", atMostRolling),
		report.Compare("controller's CPU for each step", milliseconds(f.cpu[controllerProgram], f.steps), 0, "ms", 0),
		report.Compare(fmt.Sprintf("%d plans, one after the other", s.plans), f.plans.Seconds(), 0, "s", 0),
		report.Compare(fmt.Sprintf("controller's memory after them; peer: after %d", settled), f.after, f.before, "MiB", atMostGrowth),
	}
	return append(rows, cpuRows("CPU for each machine rebooted, all programs", f.cpu, s.machines)...)
}

func milliseconds(d time.Duration, among int) float64 {
	return float64(d.Milliseconds()) / float64(max(among, 1))
}

// rebootAll reboots all workers by one operation.
func (b *bench) rebootAll(ctx context.Context) error {
	client, err := versioned.NewForConfig(fast(b.stack.Admin()))
	if err != nil {
		return fmt.Errorf("reboot the fleet: %w", err)
	}
	before, err := cpuTimes()
	if err != nil {
		return err
	}
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: "bench-reboot"}}
	operation.Spec.ClusterRef.Name, operation.Spec.Reboot = localstack.ClusterName, &v1alpha1.Reboot{}
	operation.Spec.Machines = &v1alpha1.OperationMachines{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{rackKey: rackValue}}}
	say(b.begin, "a rolling reboot of %d workers", b.machines)
	start := time.Now()
	ended, err := b.carryOut(ctx, client, operation)
	if err != nil {
		return err
	}
	b.figures.operations.rolling = time.Since(start)
	after, err := cpuTimes()
	if err != nil {
		return err
	}
	b.figures.operations.cpu = difference(before, after)
	for _, planned := range ended.Status.Plan.Machines {
		b.figures.operations.steps += len(planned.Steps)
	}
	if got := len(ended.Status.Plan.Machines); got != b.machines {
		return fmt.Errorf("operation %s was about %d machines, want %d", ended.Name, got, b.machines)
	}
	return nil
}

// carryOut makes an operation and waits for its end.
func (b *bench) carryOut(ctx context.Context, client versioned.Interface, operation *v1alpha1.TalosOperation) (*v1alpha1.TalosOperation, error) {
	operations := client.IchorV1alpha1().TalosOperations()
	if _, err := operations.Create(ctx, operation, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create operation %s: %w", operation.Name, err)
	}
	told := time.Now()
	var is *v1alpha1.TalosOperation
	err := until(ctx, "operation "+operation.Name+" has ended", func(ctx context.Context) (bool, error) {
		var err error
		if is, err = operations.Get(ctx, operation.Name, metav1.GetOptions{}); err != nil {
			return false, fmt.Errorf("read operation %s: %w", operation.Name, err)
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			say(b.begin, "%s: %d of %d: %s", is.Status.Phase, is.Status.Done, is.Status.Total, is.Status.Message)
		}
		switch is.Status.Phase {
		case v1alpha1.OperationSucceeded:
			return true, nil
		case v1alpha1.OperationFailed, v1alpha1.OperationPaused, v1alpha1.OperationCancelled:
			return false, fmt.Errorf("operation %s is %s: %s", is.Name, is.Status.Phase, is.Status.Message)
		}
		return false, nil
	})
	return is, err
}

// planMany makes many operations that only plan, and sees what the controller keeps of them.
func (b *bench) planMany(ctx context.Context) error {
	client, err := versioned.NewForConfig(fast(b.stack.Admin()))
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	pid := b.stack.Controllers()[0].PID()
	say(b.begin, "planning %d operations", b.plans)
	start := time.Now()
	for n := range b.plans {
		operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-plan-%d", n)}}
		operation.Spec.ClusterRef.Name, operation.Spec.Reboot, operation.Spec.Mode = localstack.ClusterName, &v1alpha1.Reboot{}, v1alpha1.OperationModePlan
		if _, err := b.carryOut(ctx, client, operation); err != nil {
			return err
		}
		if n+1 == settled {
			if b.figures.operations.before, err = residentMemory(pid); err != nil {
				return err
			}
		}
	}
	b.figures.operations.plans = time.Since(start)
	b.figures.operations.after, err = residentMemory(pid)
	return err
}
