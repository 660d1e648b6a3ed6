// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestList(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"as the server's table", []string{"--field-selector", "spec.approvalState=rejected"}, "NAME                                   PHASE\n" + apitest.Rejected + "   Rejected\n"},
		{"without headers", []string{"--field-selector", "spec.approvalState=rejected", "--no-headers"}, apitest.Rejected + "   Rejected\n"},
		{"wide", []string{"--field-selector", "metadata.name=" + apitest.Doubtful, "-o", "wide", "--no-headers"}, apitest.Doubtful + "   Pending   00000000-0000-0000-0000-000000000000\n"},
		{"as names", []string{"--field-selector", "spec.approvalState=approved", "-o", "name"}, "talosmachine.ichor.maesh.dev/" + apitest.ControlPlane + "\n"},
		{"by a JSON path", []string{"-o", "jsonpath={.items[0].spec.hostname}"}, "cp-1"},
		{"in columns of one's own", []string{"--field-selector", "metadata.name=" + apitest.Pending, "-o", "custom-columns=SERIAL:.spec.identity.serialNumber"}, "SERIAL\nONE002\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result := server.Run(t, append([]string{"machine", "list"}, test.args...)...)
			if result.Code != 0 {
				t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
			}
			if diff := cmp.Diff(test.want, result.Out); diff != "" {
				t.Errorf("standard output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestListOfNothingSaysWhatToDo(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	result := server.Run(t, "machine", "list")
	if result.Code != 0 || result.Out != "" || !strings.Contains(result.Err, "cluster discovery list") {
		t.Errorf("got %+v", result)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	result := server.Run(t, "machine", "show", "10.0.0.61")
	for _, want := range []string{
		"cp-1  " + apitest.ControlPlane + "  Ready", "Dell Inc. PowerEdge R650", "CP0001", "fingerprint1=  (the machine's console shows the same)",
		"/dev/nvme0n1  512 GB  NVMe A  NVME1  nvme  empty  system, installed", "enp2s0  02:00:5e:00:54:01  no carrier",
		"approved by alice, 60m ago", "disks", "Ready  True  10m  Ready",
	} {
		if !strings.Contains(strings.ToLower(result.Out), strings.ToLower(want)) {
			t.Errorf("standard output doesn't show %q:\n%s", want, result.Out)
		}
	}
	if result = server.Run(t, "machine", "show", "TWO003"); !strings.Contains(result.Out, "ichor machine approve "+apitest.TwoDisks) {
		t.Errorf("standard output doesn't say what to do next:\n%s", result.Out)
	}
}

func TestShowAsObjects(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	result := server.Run(t, "machine", "show", "cp-1", "-o", "json")
	machine := &v1alpha1.TalosMachine{}
	if err := json.Unmarshal([]byte(result.Out), machine); err != nil {
		t.Fatalf("%v in:\n%s", err, result.Out)
	}
	if machine.Kind != "TalosMachine" || machine.APIVersion != "ichor.maesh.dev/v1alpha1" || machine.Spec.Hostname != "cp-1" {
		t.Errorf("got %s %s %q", machine.APIVersion, machine.Kind, machine.Spec.Hostname)
	}
	result = server.Run(t, "machine", "show", "cp-1", "ONE002", "-o", "name")
	want := "talosmachine.ichor.maesh.dev/" + apitest.ControlPlane + "\ntalosmachine.ichor.maesh.dev/" + apitest.Pending + "\n"
	if diff := cmp.Diff(want, result.Out); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestReject(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		args     []string
		call     apitest.Call
		code     int
		says     string
		rejected []string
	}{
		{"a pending machine, with a reason", []string{"ONE002", "--reason", "not ours"}, apitest.Call{}, 0, "", []string{apitest.Pending}},
		{"one of doubtful identity too", []string{apitest.Doubtful}, apitest.Call{}, 0, "", []string{apitest.Doubtful}},
		{"again changes nothing", []string{apitest.Rejected}, apitest.Call{}, 0, "is rejected already; unchanged", nil},
		{"an approved machine is refused", []string{"cp-1"}, apitest.Call{}, cli.ExitBlocked, "it is approved, by alice, and that can't be taken back", nil},
		{"all, where nobody can confirm", []string{"--all"}, apitest.Call{}, cli.ExitUsage, "3 machines fit", nil},
		{"all, with consent given", []string{"--all", "--yes"}, apitest.Call{}, 0, "", []string{apitest.Pending, apitest.TwoDisks, apitest.Doubtful}},
		{"all, confirmed by a person", []string{"--all", "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "y\n"}, 0, "Reject 3 machines?", []string{apitest.Pending, apitest.TwoDisks, apitest.Doubtful}},
		{"all, but the person says no", []string{"--all", "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "\n"}, cli.ExitUsage, "cancelled", nil},
		{"in a dry run", []string{"ONE002", "--dry-run=server"}, apitest.Call{}, 0, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			result := server.Call(t, test.call, append([]string{"machine", "reject"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			if !strings.Contains(result.Err, test.says) {
				t.Errorf("standard error doesn't say %q:\n%s", test.says, result.Err)
			}
			for _, name := range []string{apitest.Pending, apitest.TwoDisks, apitest.Doubtful} {
				rejected := server.Machine(name).Spec.ApprovalState == v1alpha1.ApprovalRejected
				want := strings.Contains(strings.Join(test.rejected, " "), name)
				if rejected != want {
					t.Errorf("%s rejected: %v, want %v", name, rejected, want)
				}
			}
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		call apitest.Call
		code int
		says string
		want *v1alpha1.IdentityResolution
	}{
		{"as a machine of its own", []string{apitest.Doubtful, "--distinct"}, apitest.Call{}, 0, "", &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentityDistinct}},
		{"as one that is known, by its hostname", []string{apitest.Doubtful, "--same-as", "cp-1"}, apitest.Call{}, 0, "", &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentitySameAs, Machine: apitest.ControlPlane}},
		{"by a person", []string{apitest.Doubtful, "--accessible"}, apitest.Call{Terminal: apitest.Person, Typed: "\n1\n"}, 0, "its UUID is all zeros", &v1alpha1.IdentityResolution{Decision: v1alpha1.IdentityDistinct}},
		{"neither, where nobody can be asked", []string{apitest.Doubtful}, apitest.Call{}, cli.ExitUsage, "--distinct or --same-as OTHER", nil},
		{"both at once", []string{apitest.Doubtful, "--distinct", "--same-as", "cp-1"}, apitest.Call{}, cli.ExitUsage, "not both", nil},
		{"as itself", []string{apitest.Doubtful, "--same-as", apitest.Doubtful}, apitest.Call{}, cli.ExitUsage, "is the machine itself", nil},
		{"as nobody", []string{apitest.Doubtful, "--same-as", "nobody"}, apitest.Call{}, cli.ExitFailed, "--same-as: no machine", nil},
		{"where there is no doubt", []string{"ONE002", "--distinct"}, apitest.Call{}, cli.ExitBlocked, "isn't in doubt", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			result := server.Call(t, test.call, append([]string{"machine", "resolve"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			if !strings.Contains(result.Err, test.says) {
				t.Errorf("standard error doesn't say %q:\n%s", test.says, result.Err)
			}
			got := server.Machine(apitest.Doubtful).Spec.IdentityResolution
			if got != nil {
				got.By, got.At = "", nil // the server's
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("resolution (-want +got):\n%s", diff)
			}
		})
	}
}

func TestListWatchEndsQuietlyWithCtrlC(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	call := apitest.Call{Context: ctx, OnOut: func(soFar string) {
		switch {
		case strings.Contains(soFar, "Installing"):
			cancel(cli.ErrInterrupted)
		case strings.Contains(soFar, apitest.Doubtful): // the end of the list
			machine := server.Machine(apitest.Pending)
			machine.Status.Phase = v1alpha1.PhaseInstalling
			server.Put(machine)
		}
	}}
	result := server.Call(t, call, "machine", "list", "-w")
	if result.Code != cli.ExitInterrupted || result.Err != "" {
		t.Errorf("exit status %d, standard error %q; want 130 and nothing", result.Code, result.Err)
	}
	if want := apitest.Pending + "   Installing\n"; !strings.HasSuffix(result.Out, want) {
		t.Errorf("standard output doesn't end with %q:\n%s", want, result.Out)
	}
}
