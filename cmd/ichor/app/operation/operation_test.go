// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const name = "reboot-x7k2p"

func ago(minutes int) *metav1.Time {
	at := metav1.NewTime(apitest.Now.Add(-time.Duration(minutes) * time.Minute))
	return &at
}

// running is a reboot of three machines: one is done, one is draining, one is to come.
func running() *v1alpha1.TalosOperation {
	steps := []string{"Gates", "Cordon", "Drain", "Reboot", "Verify", "Uncordon"}
	return &v1alpha1.TalosOperation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: *ago(20)},
		Spec: v1alpha1.TalosOperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Reboot: &v1alpha1.Reboot{Mode: v1alpha1.RebootDefault}, Mode: v1alpha1.OperationModeRun,
			Windows: []v1alpha1.OperationWindow{{Schedule: "0 2 * * 6", Duration: metav1.Duration{Duration: 4 * time.Hour}}},
		},
		Status: v1alpha1.TalosOperationStatus{
			ObservedGeneration: 1, Phase: v1alpha1.OperationRunning, Message: apitest.ControlPlane + ": Drain: waits for pod shop/cart",
			Current: apitest.ControlPlane, Done: 1, Total: 3, StartedAt: ago(15),
			Plan: &v1alpha1.OperationPlan{
				At: *ago(16), Risks: []string{"the cluster has one control plane"},
				Checks:   []v1alpha1.OperationCheck{{Name: "Machines", Result: v1alpha1.CheckPassed}, {Name: "Ready", Result: v1alpha1.CheckWarned, Message: "not Ready now: worker-2"}},
				Machines: []v1alpha1.PlannedMachine{{Name: "worker-1", Steps: steps}, {Name: apitest.ControlPlane, Steps: steps}, {Name: "worker-2", Steps: steps}},
			},
			Machines: []v1alpha1.OperationMachineStatus{
				{Name: "worker-1", Step: "Uncordon", State: v1alpha1.StepVerified, Done: true, StartedAt: ago(15), FinishedAt: ago(11)},
				{Name: apitest.ControlPlane, Step: "Drain", State: v1alpha1.StepIntended, Message: "waits for pod shop/cart", At: ago(8), StartedAt: ago(10)},
			},
		},
	}
}

func changed(change func(*v1alpha1.TalosOperation)) *v1alpha1.TalosOperation {
	operation := running()
	change(operation)
	return operation
}

func paused(operation *v1alpha1.TalosOperation) {
	operation.Status.Phase = v1alpha1.OperationPaused
	operation.Status.Message = apitest.ControlPlane + ": Drain: not done after 10m; resume the operation to try again, or cancel it"
	operation.Status.Machines[1].State, operation.Status.Machines[1].Message = v1alpha1.StepFailed, "not done after 10m"
}

func suspended(operation *v1alpha1.TalosOperation) {
	operation.Spec.Suspend, operation.Status.Current = true, ""
	operation.Status.Phase, operation.Status.Message = v1alpha1.OperationPaused, "suspended: set spec.suspend to false to go on"
	operation.Status.Machines = operation.Status.Machines[:1]
}

func ends(phase v1alpha1.OperationPhase, message string) func(*v1alpha1.TalosOperation) {
	return func(operation *v1alpha1.TalosOperation) {
		operation.Status.Phase, operation.Status.Message, operation.Status.Current = phase, message, ""
		operation.Status.FinishedAt = ago(0)
		operation.Status.ObservedGeneration = operation.Generation
	}
}

func refused(operation *v1alpha1.TalosOperation) {
	ends(v1alpha1.OperationFailed, "spec.locked is true for worker-2")(operation)
	operation.Status.StartedAt, operation.Status.Machines = nil, nil
	operation.Status.Plan.Checks = []v1alpha1.OperationCheck{{Name: "Locked", Result: v1alpha1.CheckFailed, Message: "spec.locked is true for worker-2"}}
}

func fleet(operation *v1alpha1.TalosOperation) []metav1.Object {
	return append(apitest.Fleet(), operation)
}

func inOrder(t *testing.T, text string, wants ...string) {
	t.Helper()
	from := 0
	for _, want := range wants {
		at := strings.Index(text[from:], want)
		if at < 0 {
			t.Fatalf("%q isn't there after what comes before it:\n%s", want, text)
		}
		from += at + len(want)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.TalosOperation)
		wants  []string
	}{
		{"one that goes on", func(*v1alpha1.TalosOperation) {}, []string{
			name + "  reboot  Running\n", "cp-1: Drain: waits for pod shop/cart\n", "prod", "15m ago, for 15m", "1 of 3 machines", "0 2 * * 6 for 4h0m0s, UTC",
			"Ready     Warned  not Ready now: worker-2", "• the cluster has one control plane",
			"1.  worker-1  done", "took 4m", "2.  cp-1      Drain    Intended  since 8m  for 10m  waits for pod shop/cart", "3.  worker-2  to come", "Gates, Cordon, Drain, Reboot, Verify, Uncordon",
			"ichor operation watch " + name, "ichor operation suspend " + name, "ichor operation cancel " + name,
		}},
		{"one that stopped, and what to do", paused, []string{name + "  reboot  Paused\n", "cp-1: Drain: not done after 10m", "Failed", "ichor operation resume " + name, "ichor operation cancel " + name}},
		{"who asked for what", func(operation *v1alpha1.TalosOperation) {
			operation.Spec.Control = &v1alpha1.OperationControl{ResumeRequests: 2, CancelRequested: true, By: "alice", At: ago(3)}
		}, []string{"to resume, 2 times, to cancel; last by alice, 3m ago"}},
		{"one that isn't planned yet", func(operation *v1alpha1.TalosOperation) { operation.Status = v1alpha1.TalosOperationStatus{} }, []string{name + "  reboot  Pending\n", "not made yet"}},
		{"a plan", func(operation *v1alpha1.TalosOperation) {
			operation.Spec.Mode = v1alpha1.OperationModePlan
			ends(v1alpha1.OperationSucceeded, "planned, as spec.mode says; nothing was done")(operation)
			operation.Status.Machines, operation.Status.StartedAt = nil, nil
		}, []string{"reboot (plan only)  Succeeded", "nothing was done", "1.  worker-1  to come"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, fleet(changed(test.change))...)
			result := server.Run(t, "operation", "show", name)
			if result.Code != 0 {
				t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
			}
			inOrder(t, result.Out, test.wants...)
		})
	}
}

func TestShowAsObject(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, fleet(running())...)
	result := server.Run(t, "operation", "show", "talosoperation.ichor.maesh.dev/"+name, "-o", "json")
	got := &v1alpha1.TalosOperation{}
	if err := json.Unmarshal([]byte(result.Out), got); err != nil || got.Kind != "TalosOperation" || got.Status.Total != 3 {
		t.Errorf("%v in:\n%s", err, result.Out)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, fleet(running())...)
	if result := server.Run(t, "operation", "list", "-o", "name"); result.Out != "talosoperation.ichor.maesh.dev/"+name+"\n" {
		t.Errorf("got %+v", result)
	}
	server = apitest.Start(t, apitest.Fleet()...)
	if result := server.Run(t, "op", "ls"); result.Code != 0 || !strings.Contains(result.Err, "ichor machine reboot") {
		t.Errorf("no operations, and what starts one isn't said: %+v", result)
	}
}

// goOn moves the operation a step further each time that a text was told, as the engine would.
func goOn(server *apitest.Server, after []string, steps ...func(*v1alpha1.TalosOperation)) func(string) {
	var mutex sync.Mutex
	return func(soFar string) {
		mutex.Lock()
		defer mutex.Unlock()
		for len(steps) > 0 && strings.Contains(soFar, after[0]) {
			operation := server.Operation(name)
			steps[0](operation)
			steps, after = steps[1:], after[1:]
			server.Put(operation)
		}
	}
}

func TestWatchTellsEachTransition(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, fleet(running())...)
	call := apitest.Call{OnErr: goOn(server, []string{"cp-1 Drain", "cp-1 Reboot (Acted)", "cp-1 done", "worker-2 Gates"},
		func(operation *v1alpha1.TalosOperation) {
			operation.Status.Machines[1].Step, operation.Status.Machines[1].State, operation.Status.Machines[1].Message = "Reboot", v1alpha1.StepActed, "told to reboot 1s ago"
		},
		func(operation *v1alpha1.TalosOperation) {
			operation.Status.Machines[1].Done, operation.Status.Machines[1].FinishedAt, operation.Status.Done = true, ago(0), 2
			operation.Status.Machines[1].Message = "told to reboot 9s ago"
		},
		func(operation *v1alpha1.TalosOperation) {
			operation.Status.Machines = append(operation.Status.Machines, v1alpha1.OperationMachineStatus{Name: "worker-2", Step: "Gates", State: v1alpha1.StepIntended, StartedAt: ago(0)})
			operation.Status.Current = "worker-2"
		},
		ends(v1alpha1.OperationSucceeded, "3 machines are done"),
	)}
	result := server.Call(t, call, "operation", "watch", name)
	if result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	const at = "2026-11-30T09:00:00Z "
	want := at + name + " planned: 3 machines: worker-1, cp-1, worker-2; Ready: not Ready now: worker-2; risk: the cluster has one control plane\n" +
		at + "worker-1 done, took 4m\n" +
		at + "cp-1 Drain (Intended): waits for pod shop/cart\n" +
		at + "cp-1 Reboot (Acted): told to reboot 1s ago\n" +
		at + "cp-1 done, took 10m\n" +
		at + "worker-2 Gates (Intended)\n" +
		at + name + " Succeeded: 3 machines are done\n" +
		"operation " + name + " succeeded: 3 machines are done, took 15m\n"
	if diff := cmp.Diff(want, result.Err); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
	if result.Out != "" {
		t.Errorf("standard output has %q", result.Out)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		step func(*apitest.Server, context.CancelCauseFunc)
		call apitest.Call
		args []string
		code int
		says string
	}{
		{"with 0 when it succeeds", put(ends(v1alpha1.OperationSucceeded, "3 machines are done")), apitest.Call{}, nil, cli.ExitDone, "succeeded: 3 machines are done"},
		{"with 1 when it fails", put(ends(v1alpha1.OperationFailed, "it broke")), apitest.Call{}, nil, cli.ExitFailed, "failed: it broke"},
		{"with 2 when it is cancelled", put(ends(v1alpha1.OperationCancelled, "cancelled by alice")), apitest.Call{}, nil, cli.ExitUsage, "was cancelled: cancelled by alice"},
		{"with 5 when a check kept it from beginning", put(refused), apitest.Call{}, nil, cli.ExitBlocked, "spec.locked is true for worker-2"},
		{"with 1 and the reason when it is paused and nobody looks", put(paused), apitest.Call{}, nil, cli.ExitFailed, "is paused: cp-1: Drain: not done after 10m; resume the operation to try again, or cancel it; `ichor operation show " + name + "` shows what to do"},
		{"with 1 when it is suspended and nobody looks", put(suspended), apitest.Call{}, nil, cli.ExitFailed, "is paused: suspended"},
		{"not when it is paused before a person, but when the time is over", put(paused), apitest.Call{Terminal: apitest.Person}, []string{"--accessible", "--timeout", "2s"}, cli.ExitTimedOut, "not done after 10m"},
		{"when the object is deleted", func(server *apitest.Server, _ context.CancelCauseFunc) { server.DeleteOperation(name) }, apitest.Call{}, nil, cli.ExitFailed, "was deleted while it was watched"},
		{"by its timeout, with the command to watch on", func(*apitest.Server, context.CancelCauseFunc) {}, apitest.Call{}, []string{"--timeout", "300ms"}, cli.ExitTimedOut, "timed out after 300ms; the work goes on, watch it with: ichor operation watch " + name},
		{"by Ctrl-C, and says that the work goes on", func(_ *apitest.Server, cancel context.CancelCauseFunc) { cancel(cli.ErrInterrupted) }, apitest.Call{}, nil, cli.ExitInterrupted, "the work goes on, watch it with: ichor operation watch " + name},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, fleet(running())...)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var once sync.Once
			call := test.call
			call.Context = ctx
			call.OnErr = func(soFar string) {
				if strings.Contains(soFar, "cp-1 Drain") {
					once.Do(func() { test.step(server, cancel) })
				}
			}
			result := server.Call(t, call, append([]string{"operation", "watch", name}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d", result.Code, test.code)
			}
			if !strings.Contains(result.Err, test.says) {
				t.Errorf("standard error doesn't say %q:\n%s", test.says, result.Err)
			}
			if writes := server.Writes(); len(writes) > 0 {
				t.Errorf("watching wrote: %v", writes)
			}
		})
	}
}

func put(change func(*v1alpha1.TalosOperation)) func(*apitest.Server, context.CancelCauseFunc) {
	return func(server *apitest.Server, _ context.CancelCauseFunc) {
		operation := server.Operation(name)
		change(operation)
		server.Put(operation)
	}
}

func TestCompletionSaysWhereEachIs(t *testing.T) {
	t.Parallel()
	over := changed(ends(v1alpha1.OperationSucceeded, ""))
	over.Name, over.CreationTimestamp = "reboot-older", *ago(100)
	server := apitest.Start(t, append(fleet(running()), over)...)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"all of them, the newest first", []string{"show", ""}, name + "\tRunning, reboot, 1 of 3 done\nreboot-older\tSucceeded, reboot, 1 of 3 done\n"},
		{"those that aren't over", []string{"watch", "reb"}, name + "\tRunning, reboot, 1 of 3 done\n"},
		{"those that can be resumed", []string{"resume", ""}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result := server.Run(t, append([]string{"__complete", "operation"}, test.args...)...)
			if got, _, _ := strings.Cut(result.Out, ":"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestStatusShowsOperations(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.TalosOperation)
		wants  []string
	}{
		{"that go on", func(*v1alpha1.TalosOperation) {}, []string{"In progress", name, "15m", "reboot of prod, Running (1 of 3 machines done): cp-1: Drain: waits for pod shop/cart", "ichor operation watch " + name}},
		{"that stopped", paused, []string{"Needs you", name, "8m", "reboot of prod, Paused (1 of 3 machines done): cp-1: Drain: not done after 10m", "ichor operation show " + name}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, fleet(changed(test.change))...)
			inOrder(t, server.Run(t, "status").Out, test.wants...)
		})
	}
}
