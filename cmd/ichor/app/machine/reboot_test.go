// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// runningFleet is the fleet with more machines that run: worker-1 and worker-2, which wait for a reboot, worker-3, which is
// locked, and lab-1, of another cluster.
func runningFleet() []metav1.Object {
	objects := apitest.Fleet()
	at := metav1.NewTime(apitest.Now)
	for _, object := range objects {
		if machine, ok := object.(*v1alpha1.TalosMachine); ok && machine.Name == apitest.ControlPlane {
			machine.Status.Provisioning = &v1alpha1.ProvisioningStatus{AppliedAt: &at}
		}
	}
	for _, name := range []string{"worker-1", "worker-2", "worker-3", "lab-1"} {
		machine := &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: "object-of-" + name, Labels: map[string]string{"rack": name[len(name)-1:]}},
			Spec: v1alpha1.TalosMachineSpec{
				Hostname: name, Role: v1alpha1.RoleWorker, ApprovalState: v1alpha1.ApprovalApproved,
				ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Locked: name == "worker-3",
			},
			Status: v1alpha1.TalosMachineStatus{
				Provisioning: &v1alpha1.ProvisioningStatus{AppliedAt: &at},
				Config:       &v1alpha1.MachineConfigStatus{PendingReboot: name != "lab-1"},
			},
		}
		if name == "lab-1" {
			machine.Spec.ClusterRef.Name = "lab"
		}
		objects = append(objects, machine)
	}
	return objects
}

func TestRebootMakesAnOperation(t *testing.T) {
	t.Parallel()
	reboot := func(change func(*v1alpha1.TalosOperationSpec), names ...string) *v1alpha1.TalosOperationSpec {
		spec := &v1alpha1.TalosOperationSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Mode: v1alpha1.OperationModeRun,
			Reboot: &v1alpha1.Reboot{Mode: v1alpha1.RebootDefault}, Machines: &v1alpha1.OperationMachines{Names: names},
		}
		if change != nil {
			change(spec)
		}
		return spec
	}
	rollout := func(spec *v1alpha1.TalosOperationSpec) {
		spec.Reboot, spec.ConfigRollout = nil, &v1alpha1.ConfigRollout{}
	}
	const one, two, three = "object-of-worker-1", "object-of-worker-2", apitest.ControlPlane
	yes := apitest.Call{Terminal: apitest.Person, Typed: "y\n"}
	for _, test := range []struct {
		name string
		args []string
		call apitest.Call
		code int
		says string
		want *v1alpha1.TalosOperationSpec
	}{
		{"of machines that are named, each once", []string{"reboot", "cp-1", "worker-1", one}, apitest.Call{}, 0, "Watch it with: ichor operation watch reboot-", reboot(nil, three, one)},
		{"through the firmware, with time for drains", []string{"reboot", "worker-1", "--power-cycle", "--drain-timeout", "1h"}, apitest.Call{}, 0, "created", reboot(func(spec *v1alpha1.TalosOperationSpec) {
			spec.Reboot.Mode, spec.Drain.Timeout = v1alpha1.RebootPowerCycle, &metav1.Duration{Duration: 3600e9}
		}, one)},
		{"of nothing", []string{"reboot"}, apitest.Call{}, cli.ExitUsage, "needs a machine, or --all, or -l", nil},
		{"of names and all", []string{"reboot", "cp-1", "--all"}, apitest.Call{}, cli.ExitUsage, "either names or --all", nil},
		{"of one that doesn't run", []string{"reboot", apitest.Pending}, apitest.Call{}, cli.ExitBlocked, "is pending: it runs in no cluster", nil},
		{"of one that is locked", []string{"reboot", "worker-3"}, apitest.Call{}, cli.ExitBlocked, "is locked; to unlock it: kubectl patch talosmachine object-of-worker-3", nil},
		{"of nobody", []string{"reboot", "nobody"}, apitest.Call{}, cli.ExitFailed, `no machine "nobody"`, nil},
		{"across clusters", []string{"reboot", "worker-1", "lab-1"}, apitest.Call{}, cli.ExitUsage, "of 2 clusters (lab, prod)", nil},
		{"of all, across clusters", []string{"reboot", "--all", "--yes"}, apitest.Call{}, cli.ExitUsage, "--cluster", nil},
		{"of all, where nobody can confirm", []string{"reboot", "--all", "--cluster", "prod"}, apitest.Call{}, cli.ExitUsage, "3 machines of cluster prod fit", nil},
		{"of all, with consent given, but for locked ones", []string{"reboot", "--all", "--cluster", "prod", "--yes"}, apitest.Call{}, 0, "worker-3 is locked (spec.locked); left out", reboot(nil, three, one, two)},
		{"of a selection, confirmed by a person who sees it", []string{"reboot", "-l", "rack=2", "--accessible", "--wait=false"}, yes, 0, "  worker-2  worker  object-of-worker-2\n\nReboot 1 machine of cluster prod, one at a time?", reboot(nil, two)},
		{"of a selection, but the person says no", []string{"reboot", "-l", "rack=2", "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "\n"}, cli.ExitUsage, "cancelled; nothing was changed", nil},
		{"of a selection that fits none", []string{"reboot", "-l", "rack=9", "--yes"}, apitest.Call{}, cli.ExitFailed, "no machine that runs in a cluster fits", nil},
		{"in a dry run, unasked", []string{"reboot", "-l", "rack=2", "--dry-run=server"}, apitest.Call{}, 0, "created (server dry run)", nil},
		{"as a plan and a dry run", []string{"reboot", "cp-1", "--plan", "--dry-run=server"}, apitest.Call{}, cli.ExitUsage, "either --plan or --dry-run", nil},
		{"as a roll-out, of those that wait for it", []string{"config", "rollout", "--all", "--cluster", "prod", "--yes"}, apitest.Call{}, 0, "ichor operation watch rollout-", reboot(rollout, one, two)},
		{"as a roll-out of one that waits for nothing", []string{"config", "rollout", "cp-1"}, apitest.Call{}, 0, "No machine's configuration waits for a reboot", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, runningFleet()...)
			made := catch(server)
			result := server.Call(t, test.call, append([]string{"machine"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			if !strings.Contains(result.Out+result.Err, test.says) {
				t.Errorf("doesn't say %q:\n%s%s", test.says, result.Out, result.Err)
			}
			var got *v1alpha1.TalosOperationSpec
			if name := *made; name != "" && server.Operation(name) != nil {
				got = &server.Operation(name).Spec
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("operation (-want +got):\n%s", diff)
			}
		})
	}
}

// catch keeps the name of the operation that is made.
func catch(server *apitest.Server) *string {
	name := new(string)
	server.Written = func(object metav1.Object) { *name = object.GetName() }
	return name
}

// plans makes a plan for every operation that is made, as the engine would.
func plans(server *apitest.Server, phase v1alpha1.OperationPhase, result v1alpha1.CheckResult) {
	server.Written = func(object metav1.Object) {
		operation := object.(*v1alpha1.TalosOperation).DeepCopy() //nolint:forcetypeassert // nothing else is written
		operation.Status = v1alpha1.TalosOperationStatus{
			Phase: phase, Message: "that is why", ObservedGeneration: 1, Total: 2,
			Plan: &v1alpha1.OperationPlan{
				Risks:    []string{"the cluster has one control plane"},
				Checks:   []v1alpha1.OperationCheck{{Name: "Etcd", Result: result, Message: "as it was found"}},
				Machines: []v1alpha1.PlannedMachine{{Name: apitest.ControlPlane, Steps: []string{"Gates", "Reboot"}}, {Name: "object-of-worker-1", Steps: []string{"Reboot"}}},
			},
		}
		server.Put(operation)
	}
}

func TestPlanShowsOrderChecksAndRisks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		phase  v1alpha1.OperationPhase
		result v1alpha1.CheckResult
		code   int
	}{
		{"and ends well", v1alpha1.OperationSucceeded, v1alpha1.CheckWarned, 0},
		{"and says so when a check fails", v1alpha1.OperationFailed, v1alpha1.CheckFailed, cli.ExitBlocked},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, runningFleet()...)
			plans(server, test.phase, test.result)
			result := server.Run(t, "machine", "reboot", "--all", "--cluster", "prod", "--plan")
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			for _, want := range []string{"(plan only)", "Etcd  " + string(test.result) + "  as it was found", "• the cluster has one control plane", "1.  cp-1      to come", "Gates, Reboot", "2.  worker-1  to come"} {
				if !strings.Contains(result.Out, want) {
					t.Errorf("standard output doesn't show %q:\n%s", want, result.Out)
				}
			}
			if !strings.Contains(result.Err, "No machine was touched. The plan is kept as operation reboot-plan-") {
				t.Errorf("standard error doesn't say what is kept:\n%s", result.Err)
			}
			if writes := server.Writes(); len(writes) != 1 {
				t.Errorf("wrote %v", writes)
			}
		})
	}
}

func TestRebootWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		phase v1alpha1.OperationPhase
		code  int
		says  string
	}{
		{"well", v1alpha1.OperationSucceeded, 0, "succeeded: that is why"},
		{"not well", v1alpha1.OperationFailed, cli.ExitFailed, "failed: that is why"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, runningFleet()...)
			plans(server, test.phase, v1alpha1.CheckPassed)
			result := server.Run(t, "machine", "reboot", "cp-1", "--wait")
			if result.Code != test.code || !strings.Contains(result.Err, test.says) {
				t.Errorf("exit status %d, want %d with %q; standard error:\n%s", result.Code, test.code, test.says, result.Err)
			}
		})
	}
}
