// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const planHead = "apiVersion: cli.ichor.maesh.dev/v1alpha1\nkind: ApprovalPlan\n"

// pair is a plan for the two machines that wait: a control plane by its serial number, a worker by its UUID.
const pair = planHead + `defaults:
  reason: rack 1
machines:
- uuid: ` + apitest.TwoDisks + `
  role: worker
  hostname: box
  nodeLabels: {rack: "1"}
  installDisk: {serial: NVME3}
  network: {addresses: [10.0.0.13/24], gateway: 10.0.0.1}
- serialNumber: one002
  role: controlplane
  hostname: cp-2
`

// planFile writes a plan where a command finds it.
func planFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// pairDecided is what the pair becomes.
var pairDecided = map[string]decision{
	apitest.Pending: {State: "approved", Role: "controlplane", Hostname: "cp-2", Disks: system("NVME2"), Pin: "fingerprint2=", Reason: "rack 1"},
	apitest.TwoDisks: {
		State: "approved", Role: "worker", Hostname: "box", Labels: map[string]string{"rack": "1"}, Disks: system("NVME3"), Pin: "fingerprint3=", Reason: "rack 1",
		Network: &v1alpha1.MachineNetwork{Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:03"}, Addressing: "static", Addresses: []string{"10.0.0.13/24"}, Gateway: "10.0.0.1"},
	},
}

func expectPair(t *testing.T, server *apitest.Server) {
	t.Helper()
	for name, want := range pairDecided {
		if diff := cmp.Diff(want, decided(server.Machine(name))); diff != "" {
			t.Errorf("stored of %s (-want +got):\n%s", name, diff)
		}
	}
}

// stored are the writes that weren't dry runs.
func stored(server *apitest.Server) []string {
	return slices.DeleteFunc(server.Writes(), func(request string) bool { return strings.Contains(request, "dryRun=All") })
}

func TestApproveFromFile(t *testing.T) {
	t.Parallel()
	approvedPair := "talosmachine.ichor.maesh.dev/" + apitest.TwoDisks + " approved\ntalosmachine.ichor.maesh.dev/" + apitest.Pending + " approved\n"
	for _, test := range []struct {
		name string
		args []string
		call apitest.Call
		says []string
	}{
		{"with consent given beforehand", []string{"-f", "FILE", "--yes"}, apitest.Call{}, []string{"To approve", "/dev/nvme0n1 NVME3 512 GB, empty → system", "static 10.0.0.13/24"}},
		{"from standard input", []string{"-f", "-", "-y"}, apitest.Call{Typed: pair}, []string{"To approve"}},
		{"by a person who reads and consents", []string{"-f", "FILE", "--accessible", "--wait=false"}, apitest.Call{Terminal: apitest.Person, Typed: "y\n"}, []string{"Approve 2 machines, and wipe what is listed to be wiped?"}},
		{"from two files", []string{"-f", "FIRST", "-f", "SECOND", "--yes"}, apitest.Call{}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			first, second, _ := strings.Cut(pair, "- serialNumber")
			files := map[string]string{"FILE": pair, "FIRST": first, "SECOND": planHead + "defaults: {reason: rack 1}\nmachines:\n- serialNumber" + second}
			args := []string{"machine", "approve"}
			for _, arg := range test.args {
				if text, is := files[arg]; is {
					arg = planFile(t, text)
				}
				args = append(args, arg)
			}
			result := server.Call(t, test.call, args...)
			if result.Code != 0 {
				t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
			}
			expectPair(t, server)
			if result.Out != approvedPair {
				t.Errorf("standard output %q, want %q", result.Out, approvedPair)
			}
			for _, want := range test.says {
				if !strings.Contains(result.Err, want) {
					t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
				}
			}
			writes := server.Writes()
			if len(writes) != 4 || !strings.Contains(writes[0], "dryRun=All") || !strings.Contains(writes[1], "dryRun=All") {
				t.Errorf("want two dry runs, then two writes: %v", writes)
			}
		})
	}
}

func TestApproveFromFileStoresNothing(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(v1alpha1.Resource("talosmachines"), apitest.Pending, errText("lacks verb approve"))
	invalid := apierrors.NewInvalid(v1alpha1.Kind("TalosMachine"), apitest.TwoDisks, field.ErrorList{
		field.Invalid(field.NewPath("spec", "network", "gateway"), "10.0.0.1", "lies in none of the machine's networks"),
		field.Invalid(field.NewPath("spec", "disks").Index(0).Child("match"), "serial NVME3", "is no disk"),
	})
	for _, test := range []struct {
		name, text string
		args       []string
		call       apitest.Call
		refuse     func(*v1alpha1.TalosMachine) *apierrors.StatusError
		code       int
		says       []string
	}{
		{"in a dry run", pair, []string{"--dry-run=server"}, apitest.Call{}, nil, 0, []string{"To approve"}},
		{"without consent, where nobody can be asked", pair, nil, apitest.Call{}, nil, cli.ExitUsage, []string{"say --yes to approve the machines"}},
		{"when the person says no", pair, []string{"--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "n\n"}, nil, cli.ExitUsage, []string{"cancelled; nothing was changed"}},
		{"together with names", pair, []string{apitest.Pending, "--yes"}, apitest.Call{}, nil, cli.ExitUsage, []string{"leave names, --all and -l out"}},
		{"together with a decision", pair, []string{"--role", "worker", "--yes"}, apitest.Call{}, nil, cli.ExitUsage, []string{"--role belongs into the file"}},
		{"from a file that isn't there", pair, []string{"-f", "/nowhere/plan.yaml", "--yes"}, apitest.Call{}, nil, cli.ExitUsage, []string{"/nowhere/plan.yaml: no such file"}},
		{"with a field that there isn't", pair + "  diks: []\n", []string{"--yes"}, apitest.Call{}, nil, cli.ExitUsage, []string{`plan.yaml:15: machines[1]: unknown field "diks"; did you mean disks?`}},
		{
			"with faults in several entries, all told", pair + "- {serialNumber: NOBODY, role: worker}\n- {name: " + apitest.Doubtful + ", role: worker}\n", []string{"--yes"}, apitest.Call{}, nil, cli.ExitBlocked,
			[]string{"nothing was approved, because of 2 faults:", "plan.yaml:15: serialNumber NOBODY: none of the 5 machines", "plan.yaml:16: name " + apitest.Doubtful + ": it isn't sure which machine it is"},
		},
		{"with a machine that was approved otherwise", pair + "- {serialNumber: CP0001, role: worker}\n", []string{"--yes"}, apitest.Call{}, nil, cli.ExitBlocked, []string{"plan.yaml:15: serialNumber CP0001: role: the machine was approved with controlplane, the plan says worker"}},
		{
			"when the server refuses one, by the lines of its causes", pair, []string{"--yes"}, apitest.Call{},
			func(machine *v1alpha1.TalosMachine) *apierrors.StatusError {
				if machine.Name == apitest.TwoDisks {
					return invalid
				}
				return nil
			}, cli.ExitBlocked, []string{
				`plan.yaml:10: uuid ` + apitest.TwoDisks + `: installDisk.match: Invalid value: "serial NVME3": is no disk`,
				`plan.yaml:11: uuid ` + apitest.TwoDisks + `: network.gateway: Invalid value: "10.0.0.1": lies in none`,
			},
		},
		{
			"when the approver may not approve, said once", pair, []string{"--yes"}, apitest.Call{},
			func(*v1alpha1.TalosMachine) *apierrors.StatusError { return forbidden }, cli.ExitForbidden, []string{"because of 1 fault:", "lacks verb approve (and so for all 2 machines)"},
		},
		{
			"when the server is out of order", pair, []string{"--yes"}, apitest.Call{},
			func(*v1alpha1.TalosMachine) *apierrors.StatusError {
				return apierrors.NewServiceUnavailable("no endpoints")
			}, cli.ExitFailed, []string{"is not available just now", "no endpoints"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			if test.refuse != nil {
				server.Refuse = func(_ *http.Request, machine *v1alpha1.TalosMachine) *apierrors.StatusError {
					return test.refuse(machine)
				}
			}
			result := server.Call(t, test.call, append([]string{"machine", "approve", "-f", planFile(t, test.text)}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			for _, want := range test.says {
				if !strings.Contains(result.Err, want) {
					t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
				}
			}
			if writes := stored(server); len(writes) > 0 {
				t.Errorf("something was written: %v", writes)
			}
		})
	}
}

func TestApproveFromFileAgainChangesNothing(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	file := planFile(t, pair)
	if result := server.Run(t, "machine", "approve", "-f", file, "--yes"); result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	before := len(server.Writes())
	result := server.Run(t, "machine", "approve", "-f", file, "--yes")
	if result.Code != 0 || len(server.Writes()) != before {
		t.Errorf("exit status %d, writes %v; standard error:\n%s", result.Code, server.Writes()[before:], result.Err)
	}
	if want := "talosmachine.ichor.maesh.dev/" + apitest.Pending + " unchanged\n"; !strings.Contains(result.Out, want) {
		t.Errorf("standard output has no %q:\n%s", want, result.Out)
	}
}

// TestApproveFromFileTellsOfEach has one machine change between the trial and the approval: that one fails, the others are
// approved, and the same file finishes the work later.
func TestApproveFromFileTellsOfEach(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	var once sync.Once
	server.Refuse = func(request *http.Request, sent *v1alpha1.TalosMachine) *apierrors.StatusError {
		if sent.Name == apitest.TwoDisks && request.URL.Query().Get("dryRun") == "" {
			once.Do(func() {
				machine := server.Machine(sent.Name)
				machine.Status.MaintenanceFingerprint = "other="
				server.Put(machine)
			})
		}
		return nil
	}
	file := planFile(t, pair)
	result := server.Run(t, "machine", "approve", "-f", file, "--yes")
	if result.Code != cli.ExitFailed {
		t.Errorf("exit status %d, want %d", result.Code, cli.ExitFailed)
	}
	if want := "talosmachine.ichor.maesh.dev/" + apitest.Pending + " approved\n"; result.Out != want {
		t.Errorf("standard output %q, want %q", result.Out, want)
	}
	for _, want := range []string{"error: " + apitest.TwoDisks + ": it changed since it was shown", "fingerprint3=", "1 of 2 machines failed"} {
		if !strings.Contains(result.Err, want) {
			t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
		}
	}
	if again := server.Run(t, "machine", "approve", "-f", file, "--yes", "-o", "name"); again.Code != 0 || strings.Count(again.Out, "\n") != 2 {
		t.Errorf("again: exit status %d, standard output %q, standard error:\n%s", again.Code, again.Out, again.Err)
	}
}

func TestApproveFromFileCountsControlPlanes(t *testing.T) {
	t.Parallel()
	objects := apitest.Fleet()
	for _, object := range objects {
		if cluster, is := object.(*v1alpha1.TalosCluster); is {
			cluster.Status.ControlPlanes = v1alpha1.ControlPlaneCounts{Approved: 3, Limit: 4}
		}
	}
	server := apitest.Start(t, objects...)
	result := server.Run(t, "machine", "approve", "-f", planFile(t, strings.Replace(pair, "role: worker", "role: controlplane", 1)), "--yes")
	if result.Code != cli.ExitBlocked || len(server.Writes()) > 0 || !strings.Contains(result.Err, "plan.yaml:13: serialNumber one002: role: the plan makes 2 control planes") {
		t.Errorf("exit status %d, writes %v, standard error:\n%s", result.Code, server.Writes(), result.Err)
	}
}

func TestApproveFromFileWaits(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	server.Written = func(object metav1.Object) {
		machine := server.Machine(object.GetName())
		if machine.Spec.ApprovalState != v1alpha1.ApprovalApproved || machine.Status.Phase == v1alpha1.PhaseReady {
			return
		}
		machine.Status.Phase, machine.Status.NodeName = v1alpha1.PhaseReady, machine.Spec.Hostname
		machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}}
		server.Put(machine)
	}
	result := server.Run(t, "machine", "approve", "-f", planFile(t, pair), "--yes", "--wait", "--timeout=20s")
	if result.Code != 0 || !strings.Contains(result.Err, "box is Ready, Node box") || !strings.Contains(result.Err, "cp-2 is Ready") {
		t.Errorf("exit status %d, standard error:\n%s", result.Code, result.Err)
	}
}

func TestPlanIsWrittenToBeApproved(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	result := server.Run(t, "machine", "plan", "--all")
	if result.Code != 0 || result.Err != "" {
		t.Fatalf("exit status %d, standard error:\n%s", result.Code, result.Err)
	}
	for _, want := range []string{"- serialNumber: ONE002\n  role: controlplane\n  hostname: cp-2\n  installDisk: {serial: NVME2}\n", "# left out: " + apitest.Doubtful + ": it isn't sure"} {
		if !strings.Contains(result.Out, want) {
			t.Errorf("the plan has no %q:\n%s", want, result.Out)
		}
	}
	if result := server.Run(t, "machine", "approve", "-f", planFile(t, result.Out), "--yes"); result.Code != cli.ExitUsage || !strings.Contains(result.Err, "installDisk: is missing, and can't be guessed: 2 disks") {
		t.Errorf("exit status %d, standard error:\n%s", result.Code, result.Err)
	}
	filled := strings.Replace(result.Out, "  installDisk:\n", "  installDisk: {serial: HDD3}\n", 1)
	if result := server.Run(t, "machine", "approve", "-f", planFile(t, filled), "--yes"); result.Code != 0 {
		t.Errorf("exit status %d, standard error:\n%s", result.Code, result.Err)
	}
	for _, test := range [][]string{{"machine", "plan"}, {"machine", "plan", "--all", "--role", "boss"}} {
		if result := server.Run(t, test...); result.Code != cli.ExitUsage {
			t.Errorf("%v: exit status %d, want %d", test, result.Code, cli.ExitUsage)
		}
	}
}
