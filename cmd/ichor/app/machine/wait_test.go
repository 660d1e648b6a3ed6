// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// goOn moves a machine a step further once a line about the step before was printed, as a controller would.
func goOn(server *apitest.Server, name string, steps ...func(*v1alpha1.TalosMachine)) func(string) {
	var mutex sync.Mutex
	lines := 0
	return func(soFar string) {
		mutex.Lock()
		defer mutex.Unlock()
		told := strings.Count(soFar, apitest.Now.Format("2006-01-02T"))
		for ; lines < told && len(steps) > 0; lines++ {
			machine := server.Machine(name)
			steps[0](machine)
			steps = steps[1:]
			server.Put(machine)
		}
	}
}

func enters(phase v1alpha1.MachinePhase, stage v1alpha1.MachineStage, condition string, status metav1.ConditionStatus, message string) func(*v1alpha1.TalosMachine) {
	return func(machine *v1alpha1.TalosMachine) {
		machine.Status.Phase, machine.Status.Stage = phase, stage
		machine.Status.Conditions = []metav1.Condition{{Type: condition, Status: status, Reason: "Because", Message: message, LastTransitionTime: metav1.NewTime(apitest.Now)}}
		if phase == v1alpha1.PhaseReady {
			machine.Status.NodeName = "worker-1"
			machine.Status.SystemDisk = &v1alpha1.SystemDisk{Device: "/dev/nvme0n1", Serial: "NVME2"}
		}
	}
}

func TestApproveAndWaitTellsEachTransition(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	call := apitest.Call{OnErr: goOn(server, apitest.Pending,
		enters(v1alpha1.PhaseInstalling, v1alpha1.StageInstalling, v1alpha1.ConditionInstalled, metav1.ConditionFalse, "installs on NVME2"),
		enters(v1alpha1.PhaseJoining, v1alpha1.StageBooting, v1alpha1.ConditionJoined, metav1.ConditionFalse, "waits for its Node"),
		enters(v1alpha1.PhaseReady, v1alpha1.StageRunning, v1alpha1.ConditionReady, metav1.ConditionTrue, ""),
	)}
	result := server.Call(t, call, "machine", "approve", apitest.Pending, "--yes", "--role", "worker", "--wait")
	if result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	from := 0
	for _, want := range []string{
		"2026-11-30T09:00:00Z worker-1 Approved (maintenance)\n",
		"2026-11-30T09:00:00Z worker-1 Installing: installs on NVME2\n",
		"2026-11-30T09:00:00Z worker-1 Joining (booting): waits for its Node\n",
		"2026-11-30T09:00:00Z worker-1 Ready (running)\n",
		"worker-1 is Ready, Node worker-1, Talos is installed on /dev/nvme0n1 (serial NVME2), the disk that was approved\n",
	} {
		at := strings.Index(result.Err[from:], want)
		if at < 0 {
			t.Fatalf("standard error doesn't say %q after what came before it:\n%s", want, result.Err)
		}
		from += at + len(want)
	}
	if strings.ContainsAny(result.Err, "\x1b\r") {
		t.Errorf("control bytes where no terminal is: %q", result.Err)
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		step func(*apitest.Server, context.CancelCauseFunc)
		args []string
		code int
		says string
	}{
		{"with failure", func(server *apitest.Server, _ context.CancelCauseFunc) {
			machine := server.Machine(apitest.ControlPlane)
			enters(v1alpha1.PhaseFailed, v1alpha1.StageMaintenance, v1alpha1.ConditionInstalled, metav1.ConditionFalse, "the disk is gone")(machine)
			server.Put(machine)
		}, nil, cli.ExitFailed, "cp-1: the disk is gone"},
		{"when the object is deleted", func(server *apitest.Server, _ context.CancelCauseFunc) { server.Delete(apitest.ControlPlane) }, nil, cli.ExitFailed, "its object was deleted"},
		{"by its timeout, with the command to watch on", func(*apitest.Server, context.CancelCauseFunc) {}, []string{"--timeout", "300ms"}, cli.ExitTimedOut, "timed out after 300ms; the work goes on, watch it with: ichor machine show cp-1 --wait"},
		{"by Ctrl-C, and says that the work goes on", func(_ *apitest.Server, cancel context.CancelCauseFunc) { cancel(cli.ErrInterrupted) }, nil, cli.ExitInterrupted, "the work goes on, watch it with: ichor machine show cp-1 --wait"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			machine := server.Machine(apitest.ControlPlane)
			enters(v1alpha1.PhaseInstalling, v1alpha1.StageInstalling, v1alpha1.ConditionInstalled, metav1.ConditionFalse, "installs")(machine)
			server.Put(machine)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var once sync.Once
			call := apitest.Call{Context: ctx, OnErr: func(soFar string) {
				if strings.Contains(soFar, "Installing") {
					once.Do(func() { test.step(server, cancel) })
				}
			}}
			result := server.Call(t, call, append([]string{"machine", "show", "cp-1", "--wait"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d", result.Code, test.code)
			}
			if !strings.Contains(result.Err, test.says) {
				t.Errorf("standard error doesn't say %q:\n%s", test.says, result.Err)
			}
		})
	}
}
