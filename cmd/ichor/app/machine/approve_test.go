// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// decision is what of a machine's spec an approval decides.
type decision struct {
	State    v1alpha1.ApprovalState
	Role     v1alpha1.MachineRole
	Hostname string
	Labels   map[string]string
	Disks    []v1alpha1.MachineDisk
	Network  *v1alpha1.MachineNetwork
	Pin      string
	Reason   string
}

func decided(machine *v1alpha1.TalosMachine) decision {
	spec := machine.Spec
	made := decision{State: spec.ApprovalState, Role: spec.Role, Hostname: spec.Hostname, Labels: spec.NodeLabels, Disks: spec.Disks, Network: spec.Network}
	if spec.Approval != nil {
		made.Pin, made.Reason = spec.Approval.MaintenanceFingerprint, spec.Approval.Reason
	}
	return made
}

func system(serial string) []v1alpha1.MachineDisk {
	return []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: serial}, Role: v1alpha1.DiskSystem}}
}

func TestApprove(t *testing.T) {
	t.Parallel()
	vlan := int32(40)
	for _, test := range []struct {
		name    string
		args    []string
		call    apitest.Call
		machine string
		want    decision
	}{
		{
			"by flags, the machine named by its serial number, the disk by its path",
			[]string{"ONE002", "--role", "worker", "--install-disk", "/dev/nvme0n1", "--reason", "rack 1"}, apitest.Call{}, apitest.Pending,
			decision{State: "approved", Role: "worker", Disks: system("NVME2"), Pin: "fingerprint2=", Reason: "rack 1"},
		},
		{
			"by flags, with network, labels, a data disk and the fingerprint from the console",
			[]string{
				"10.0.0.63", "--role=controlplane", "--hostname=cp-2", "--install-disk=NVME3", "--disk=serial=HDD3:userVolume:data", "--interface=enp1s0",
				"--address=10.0.0.13/24", "--gateway=10.0.0.1", "--nameserver=10.0.0.1", "--vlan=40", "--label=rack=1", "--fingerprint=fingerprint3=",
			}, apitest.Call{}, apitest.TwoDisks,
			decision{
				State: "approved", Role: "controlplane", Hostname: "cp-2", Labels: map[string]string{"rack": "1"}, Pin: "fingerprint3=",
				Disks: append(system("NVME3"), v1alpha1.MachineDisk{Match: v1alpha1.DiskMatch{Serial: "HDD3"}, Role: v1alpha1.DiskUserVolume, Name: "data"}),
				Network: &v1alpha1.MachineNetwork{
					Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:03"}, Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.0.0.13/24"},
					Gateway: "10.0.0.1", Nameservers: []string{"10.0.0.1"}, VLAN: &vlan,
				},
			},
		},
		{
			"with the only disk there is, when none is named", []string{apitest.Pending, "--role", "worker"}, apitest.Call{}, apitest.Pending,
			decision{State: "approved", Role: "worker", Disks: system("NVME2"), Pin: "fingerprint2="},
		},
		{
			"as proposed", []string{apitest.Pending, "--yes"}, apitest.Call{}, apitest.Pending,
			decision{State: "approved", Role: "controlplane", Hostname: "cp-2", Disks: system("NVME2"), Pin: "fingerprint2="},
		},
		{
			"as proposed, but as a worker", []string{apitest.Pending, "--yes", "--role", "worker"}, apitest.Call{}, apitest.Pending,
			decision{State: "approved", Role: "worker", Hostname: "worker-1", Disks: system("NVME2"), Pin: "fingerprint2="},
		},
		{
			"by a person who takes what is proposed", []string{apitest.Pending, "--accessible", "--wait=false"},
			apitest.Call{Terminal: apitest.Person, Typed: "\n\n\n\n\n\ny\n"}, apitest.Pending,
			decision{State: "approved", Role: "controlplane", Hostname: "cp-2", Disks: system("NVME2"), Pin: "fingerprint2="},
		},
		{
			"by a person who decides everything", []string{apitest.TwoDisks, "--accessible", "--wait=false"},
			// worker, its hostname, the disk (asked again), the other disk as volume "data", static, the interface, VLAN, address, gateway, DNS, labels, reason
			apitest.Call{Terminal: apitest.Person, Typed: "2\nbox\n\n1\n2\n3\ndata\n3\n\n40\n\n10.0.0.1\n10.0.0.1,10.0.0.2\nrack=1\nfor the lab\nyes\n"}, apitest.TwoDisks,
			decision{
				State: "approved", Role: "worker", Hostname: "box", Labels: map[string]string{"rack": "1"}, Pin: "fingerprint3=", Reason: "for the lab",
				Disks: append(system("NVME3"), v1alpha1.MachineDisk{Match: v1alpha1.DiskMatch{Serial: "HDD3"}, Role: v1alpha1.DiskUserVolume, Name: "data"}),
				Network: &v1alpha1.MachineNetwork{
					Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:03"}, Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.0.0.63/24"},
					Gateway: "10.0.0.1", Nameservers: []string{"10.0.0.1", "10.0.0.2"}, VLAN: &vlan,
				},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			result := server.Call(t, test.call, append([]string{"machine", "approve"}, test.args...)...)
			if result.Code != 0 {
				t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
			}
			if diff := cmp.Diff(test.want, decided(server.Machine(test.machine))); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			if want := "talosmachine.ichor.maesh.dev/" + test.machine + " approved\n"; result.Out != want {
				t.Errorf("standard output %q, want %q", result.Out, want)
			}
		})
	}
}

func TestApproveStoresNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		call apitest.Call
		code int
		says []string
	}{
		{"without flags where nobody can be asked", []string{apitest.Pending}, apitest.Call{}, cli.ExitUsage, []string{"--role controlplane|worker", "--install-disk", "--yes", "ichor machine show " + apitest.Pending}},
		{"without a machine", nil, apitest.Call{}, cli.ExitUsage, []string{"needs a machine, or --all, or -l"}},
		{"with names and a selector", []string{apitest.Pending, "-l", "rack=1"}, apitest.Call{}, cli.ExitUsage, []string{"either names or --all and -l"}},
		{"for a name that nobody has", []string{"nobody", "cp-9", "--yes"}, apitest.Call{}, cli.ExitFailed, []string{`no machine "nobody"`, `no machine "cp-9"`}},
		{"without a role", []string{apitest.Pending, "--install-disk", "NVME2"}, apitest.Call{}, cli.ExitUsage, []string{"--role: say controlplane or worker", "controlplane)"}},
		{"with two disks and none named", []string{apitest.TwoDisks, "--role", "worker"}, apitest.Call{}, cli.ExitUsage, []string{"--install-disk", "2 disks are fit for it: /dev/nvme0n1 (serial NVME3), /dev/sda (serial HDD3)"}},
		{"with two disks, not even by --yes", []string{apitest.TwoDisks, "--yes"}, apitest.Call{}, cli.ExitUsage, []string{"2 disks are fit for it"}},
		{"with several faults, all told", []string{apitest.Pending, "--role", "boss", "--install-disk", "S9", "--interface", "eth9"}, apitest.Call{}, cli.ExitUsage, []string{"--role", "--install-disk", "--interface"}},
		{"with a VLAN out of range", []string{apitest.Pending, "--role", "worker", "--vlan", "4095"}, apitest.Call{}, cli.ExitUsage, []string{"4095 is not between 1 and 4094"}},
		{"with one hostname for two machines", []string{apitest.Pending, apitest.TwoDisks, "--hostname", "cp-2"}, apitest.Call{}, cli.ExitUsage, []string{"--hostname is of one machine"}},
		{"with another fingerprint than on the console", []string{apitest.Pending, "--role", "worker", "--fingerprint", "console="}, apitest.Call{}, cli.ExitFailed, []string{"fingerprint2=", "not console="}},
		{"for a doubtful identity", []string{apitest.Doubtful, "--yes"}, apitest.Call{}, cli.ExitBlocked, []string{"its UUID is all zeros", "ichor machine resolve " + apitest.Doubtful}},
		{"for a rejected machine", []string{apitest.Rejected, "--yes"}, apitest.Call{}, cli.ExitBlocked, []string{"was rejected", "kubectl delete talosmachine " + apitest.Rejected}},
		{"for an approved machine without flags", []string{"cp-1", "--yes"}, apitest.Call{}, 0, []string{"cp-1 is approved already, by alice; unchanged"}},
		{"when the person refuses consent", []string{apitest.Pending, "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "\n\n\n\n\n\nn\n"}, cli.ExitUsage, []string{"Will be wiped", "cancelled; nothing was changed"}},
		{"when the person leaves", []string{apitest.Pending, "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "1\n"}, cli.ExitUsage, []string{"cancelled; nothing was changed"}},
		{"by a selector where nobody can confirm the list", []string{"-l", "rack=1", "--role", "worker", "--install-disk", "NVME3"}, apitest.Call{}, cli.ExitUsage, []string{"nobody can be asked", "--yes"}},
		{"by a selector that fits nobody", []string{"-l", "rack=9", "--yes"}, apitest.Call{}, cli.ExitFailed, []string{"no pending machine fits"}},
		{"in a dry run", []string{apitest.Pending, "--yes", "--dry-run=server"}, apitest.Call{}, 0, []string{"To approve"}},
		{"in an output format that there isn't", []string{apitest.Pending, "--yes", "-o", "xml"}, apitest.Call{}, cli.ExitUsage, []string{"xml"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			before := map[string]string{}
			for _, name := range []string{apitest.Pending, apitest.TwoDisks, apitest.Doubtful, apitest.Rejected, apitest.ControlPlane} {
				before[name] = server.Machine(name).ResourceVersion
			}
			result := server.Call(t, test.call, append([]string{"machine", "approve"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			for _, want := range test.says {
				if !strings.Contains(result.Err, want) {
					t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
				}
			}
			for name, version := range before {
				if got := server.Machine(name).ResourceVersion; got != version {
					t.Errorf("%s was written to (%s → %s)", name, version, got)
				}
			}
		})
	}
}

func TestApproveSeveral(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	result := server.Run(t, "machine", "approve", apitest.Pending, apitest.TwoDisks, apitest.Doubtful, "--yes")
	if result.Code != cli.ExitFailed {
		t.Errorf("exit status %d, want %d", result.Code, cli.ExitFailed)
	}
	if want := "talosmachine.ichor.maesh.dev/" + apitest.Pending + " approved\n"; result.Out != want {
		t.Errorf("standard output %q, want %q", result.Out, want)
	}
	for _, want := range []string{"error: " + apitest.TwoDisks + ": --install-disk", "error: " + apitest.Doubtful + ": it isn't sure", "2 of 3 machines failed"} {
		if !strings.Contains(result.Err, want) {
			t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
		}
	}
}

// TestApproveAllProposesOneAfterAnother has room for one control plane: the second machine becomes a worker.
func TestApproveAllProposesOneAfterAnother(t *testing.T) {
	t.Parallel()
	objects := apitest.Fleet()
	for _, object := range objects {
		switch object := object.(type) {
		case *v1alpha1.TalosCluster:
			object.Spec.ControlPlane.Count = 2
		case *v1alpha1.TalosMachine:
			object.Status.Inventory.Disks = object.Status.Inventory.Disks[:1]
		}
	}
	server := apitest.Start(t, objects...)
	if result := server.Run(t, "machine", "approve", apitest.Pending, apitest.TwoDisks, "--yes"); result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	for name, want := range map[string]decision{
		apitest.Pending:  {State: "approved", Role: "controlplane", Hostname: "cp-2", Disks: system("NVME2"), Pin: "fingerprint2="},
		apitest.TwoDisks: {State: "approved", Role: "worker", Hostname: "worker-1", Disks: system("NVME3"), Pin: "fingerprint3="},
	} {
		if diff := cmp.Diff(want, decided(server.Machine(name))); diff != "" {
			t.Errorf("stored of %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestApproveByPersonWithSelector(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	call := apitest.Call{Terminal: apitest.Person, Typed: "y\n"}
	result := server.Call(t, call, "machine", "approve", "-l", "rack=1", "--role", "worker", "--install-disk", "serial=NVME3", "--accessible", "--wait=false")
	if result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	if state := server.Machine(apitest.TwoDisks).Spec.ApprovalState; state != v1alpha1.ApprovalApproved {
		t.Errorf("state %s, want approved", state)
	}
	if state := server.Machine(apitest.Pending).Spec.ApprovalState; state != v1alpha1.ApprovalPending {
		t.Errorf("a machine that the selector doesn't fit is %s", state)
	}
}

// meanwhile changes a machine just before the first approval of it arrives.
func meanwhile(server *apitest.Server, change func(*v1alpha1.TalosMachine)) {
	done := false
	server.Refuse = func(_ *http.Request, sent *v1alpha1.TalosMachine) *apierrors.StatusError {
		if done {
			return nil
		}
		done = true
		machine := server.Machine(sent.Name)
		change(machine)
		server.Put(machine)
		return nil
	}
}

func TestApproveWhatMovedOn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.TalosMachine)
		says   string // empty: approved all the same
	}{
		{"the controller wrote what nobody was shown", func(machine *v1alpha1.TalosMachine) {
			machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}
		}, ""},
		{"another certificate", func(machine *v1alpha1.TalosMachine) { machine.Status.MaintenanceFingerprint = "other=" }, "its fingerprint was fingerprint2= and is other= now"},
		{"a disk was pulled", func(machine *v1alpha1.TalosMachine) { machine.Status.Inventory.Disks = nil }, "its disks, network interfaces or other hardware are different"},
		{"someone was faster", func(machine *v1alpha1.TalosMachine) {
			machine.Spec.ApprovalState = v1alpha1.ApprovalApproved
			machine.Spec.Approval = &v1alpha1.MachineApproval{By: "bob"}
		}, "it was approved meanwhile, by bob"},
		{"its identity came into doubt", func(machine *v1alpha1.TalosMachine) {
			machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionIdentityResolved, Status: metav1.ConditionFalse, Message: "another machine has its UUID"}}
		}, "its identity is in doubt: another machine has its UUID"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			meanwhile(server, test.change)
			result := server.Run(t, "machine", "approve", apitest.Pending, "--role", "worker")
			approved := server.Machine(apitest.Pending).Spec.Role == v1alpha1.RoleWorker
			if approved != (test.says == "") {
				t.Errorf("approved: %v; standard error:\n%s", approved, result.Err)
			}
			if !strings.Contains(result.Err, test.says) {
				t.Errorf("standard error doesn't say %q:\n%s", test.says, result.Err)
			}
		})
	}
}

func TestApproveRefusedByTheServer(t *testing.T) {
	t.Parallel()
	invalid := apierrors.NewInvalid(v1alpha1.Kind("TalosMachine"), apitest.Pending, field.ErrorList{
		field.Invalid(field.NewPath("spec", "hostname"), "cp_2", "a DNS label"),
		field.Duplicate(field.NewPath("spec", "network", "addresses").Index(0), "10.0.0.1/24"),
	})
	for _, test := range []struct {
		name    string
		refusal *apierrors.StatusError
		code    int
		says    []string
	}{
		{"field by field", invalid, cli.ExitFailed, []string{
			`error: talosmachine "` + apitest.Pending + `" was refused, nothing is stored:`,
			`  spec.hostname: Invalid value: "cp_2": a DNS label`, `  spec.network.addresses[0]: Duplicate value`,
		}},
		{"for want of the verb", apierrors.NewForbidden(v1alpha1.Resource("talosmachines"), apitest.Pending, errText(`"alice" lacks verb approve on talosmachines/approval`)), cli.ExitForbidden, []string{"lacks verb approve"}},
		{"for want of a slot", apierrors.NewForbidden(v1alpha1.Resource("talosmachines"), apitest.Pending, errText("4 of 4 control planes are approved: cp-1")), cli.ExitForbidden, []string{"4 of 4 control planes"}},
		{"for want of a sign-in", apierrors.NewUnauthorized("Unauthorized"), cli.ExitForbidden, []string{"not signed in"}},
		{"because it isn't there", apierrors.NewServiceUnavailable("the server is currently unable to handle the request"), cli.ExitFailed, []string{"kubectl get apiservice v1alpha1.ichor.maesh.dev"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			server.Refuse = func(*http.Request, *v1alpha1.TalosMachine) *apierrors.StatusError { return test.refusal }
			result := server.Run(t, "machine", "approve", apitest.Pending, "--role", "worker", "--hostname", "cp_2")
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d", result.Code, test.code)
			}
			for _, want := range test.says {
				if !strings.Contains(result.Err, want) {
					t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
				}
			}
		})
	}
}

type errText string

func (e errText) Error() string { return string(e) }
