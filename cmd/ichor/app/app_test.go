// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"), // klog's flusher, started when it is imported
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),        // client-go caches transports for the life of the program
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	for _, test := range []struct {
		name string
		as   string
		args []string
		code int
		out  string
		err  string
	}{
		{"alone it shows its help", "ichor", nil, 0, "ichor [command] --help", ""},
		{"as a kubectl plugin it says so", "/usr/bin/kubectl-ichor", nil, 0, "kubectl ichor [command] --help", ""},
		{"the plugin's examples say so too", "kubectl-ichor", []string{"machine", "approve", "--help"}, 0, "  kubectl ichor machine approve 10.0.0.61", ""},
		{"a group alone shows its help", "ichor", []string{"machine"}, 0, "approve", ""},
		{"an unknown command is wrong usage", "ichor", []string{"clster"}, cli.ExitUsage, "", "did you mean cluster?"},
		{"an unknown verb too", "ichor", []string{"machine", "aprove"}, cli.ExitUsage, "", "did you mean approve?"},
		{"an unknown flag too", "ichor", []string{"machine", "list", "--colour"}, cli.ExitUsage, "", "see `ichor machine list --help`"},
		{"a word too many too", "ichor", []string{"status", "now"}, cli.ExitUsage, "", `takes no "now"`},
		{"exit statuses are a help topic", "ichor", []string{"help", "exit-status"}, 0, "timed out while the work goes on", ""},
		{"the flags of every command are listed apart", "ichor", []string{"options"}, 0, "--as-group", ""},
		{"no secret can be given as an argument", "ichor", []string{"status", "--token", "x"}, cli.ExitUsage, "", "unknown flag: --token"},
		{"versions", "ichor", []string{"version"}, 0, "Ichor API: ichor.maesh.dev/v1alpha1", ""},
		{"versions as JSON", "ichor", []string{"version", "--client", "-o", "json"}, 0, `"api": "ichor.maesh.dev/v1alpha1"`, ""},
		{"completion scripts", "ichor", []string{"completion", "bash"}, 0, "__start_ichor", ""},
		{"names are completed with their stage", "ichor", []string{"__complete", "machine", "show", "cp"}, 0, "cp-1\tReady, running, Dell Inc. PowerEdge R650, 10.0.0.61\n", ""},
		{"only those that wait are completed for an approval", "ichor", []string{"__complete", "machine", "approve", ""}, 0, apitest.Pending + "\tPending, maintenance", ""},
		{"disks of the machine on the line are completed", "ichor", []string{"__complete", "machine", "approve", "TWO003", "--install-disk", "H"}, 0, "HDD3\t/dev/sda 4 TB HDD B", ""},
		{"kubectl's completion", "kubectl_complete-ichor", []string{"machine", "show", "cp"}, 0, "cp-1\tReady", ""},
		{"what waits for a person", "ichor", []string{"status"}, 0, "ichor machine approve " + apitest.Pending, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result := server.Call(t, apitest.Call{As: test.as}, test.args...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d", result.Code, test.code)
			}
			if !strings.Contains(result.Out, test.out) {
				t.Errorf("standard output doesn't say %q:\n%s", test.out, result.Out)
			}
			if !strings.Contains(result.Err, test.err) {
				t.Errorf("standard error doesn't say %q:\n%s", test.err, result.Err)
			}
		})
	}
}

func TestCompletionOffersOnlyWhatWaits(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	result := server.Run(t, "__complete", "machine", "approve", "")
	for _, unwanted := range []string{apitest.ControlPlane, apitest.Rejected} {
		if strings.Contains(result.Out, unwanted) {
			t.Errorf("%s is offered for approval:\n%s", unwanted, result.Out)
		}
	}
}

func TestNoColourWhereNoTerminalIs(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	if result := server.Run(t, "status"); strings.Contains(result.Out, "\x1b") {
		t.Errorf("control bytes: %q", result.Out)
	}
	plain := apitest.Person
	plain.NoColor = true
	if result := server.Call(t, apitest.Call{Terminal: plain}, "status"); strings.Contains(result.Out, "\x1b") {
		t.Errorf("control bytes with NO_COLOR: %q", result.Out)
	}
	if result := server.Call(t, apitest.Call{Terminal: apitest.Person}, "status"); !strings.Contains(result.Out, "\x1b") {
		t.Error("no colours on a terminal")
	}
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := apitest.New()
	server.URL = "http://127.0.0.1:1"
	result := server.Run(t, "status")
	if result.Code != cli.ExitFailed || !strings.HasPrefix(result.Err, "error: the Kubernetes API at 127.0.0.1:1 doesn't answer: ") {
		t.Errorf("got %+v", result)
	}
}

func TestServerWithoutIchor(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	server.Absent = true
	result := server.Run(t, "machine", "list")
	if result.Code != cli.ExitFailed || !strings.Contains(result.Err, "doesn't serve ichor.maesh.dev/v1alpha1") {
		t.Errorf("got %+v", result)
	}
}
