// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// machineLogs reads what services and the kernel of the first control plane have logged, through the Kubernetes API.
func machineLogs(t *testing.T, s *suite) {
	m := s.at(t, s.stack.Fleet().Machines[0].Addr())
	dir := s.stack.Dir()
	operator, viewer := dir.KubeconfigOf("operator"), dir.KubeconfigOf("viewer")
	all := s.must(t, operator, "ichor", "machine", "logs", m.Name, "kubelet")
	if !strings.Contains(all, "service[kubelet]") {
		t.Errorf("the log of kubelet is %q", all)
	}
	if last := s.must(t, operator, "ichor", "machine", "logs", m.Name, "kubelet", "--tail", "1"); last == "" || !strings.HasSuffix(all, last) || strings.Count(last, "\n") != 1 {
		t.Errorf("the last line of kubelet's log is %q of %q", last, all)
	}
	kernel := s.must(t, operator, "kubectl", "get", "--raw", "/apis/ichor.maesh.dev/v1alpha1/talosmachines/"+m.Name+"/log?kernel=true")
	if last := s.must(t, operator, "ichor", "machine", "dmesg", m.Name, "--tail", "2"); strings.Count(last, "\n") != 2 || !strings.HasSuffix(kernel, last) {
		t.Errorf("the kernel's last lines are %q of %q", last, kernel)
	}
	for name, tc := range map[string]struct {
		kubeconfig string
		args       []string
		status     int
		words      string
	}{
		"a service that isn't there":         {operator, []string{"machine", "logs", m.Name, "nonsense"}, 1, `no service "nonsense"`},
		"what is no name":                    {operator, []string{"machine", "logs", m.Name, "../x"}, 1, "is no name of a service"},
		"a number that can't be":             {operator, []string{"machine", "dmesg", m.Name, "--follow", "--tail", "3"}, 1, "from now on"},
		"by somebody who may look, not read": {viewer, []string{"machine", "logs", m.Name, "kubelet"}, 4, "talosmachines/log"},
		"of a machine that waits":            {operator, []string{"machine", "dmesg", s.at(t, s.stack.Fleet().Machines[s.used].Addr()).Name}, 1, "no configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := s.run(t, tc.kubeconfig, "ichor", tc.args...); r.status != tc.status || !strings.Contains(r.err, tc.words) || r.out != "" {
				t.Errorf("status %d, printed %q and %q; want %d and %q", r.status, r.out, r.err, tc.status, tc.words)
			}
		})
	}
	t.Run("followed", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), bound(commandFor))
		defer cancel()
		command := exec.CommandContext(ctx, s.stack.Program("ichor"), "machine", "logs", m.Name, "kubelet", "--follow", "--tail", "1")
		command.Env = append(os.Environ(), "KUBECONFIG="+operator)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || !strings.Contains(line, "service[kubelet]") {
			t.Errorf("the first line is %q, %v", line, err)
		}
		// It goes on until it is interrupted.
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("it ended by itself: %v", err)
		}
		if err := command.Wait(); command.ProcessState.ExitCode() != 130 {
			t.Errorf("ended with %v, want status 130", err)
		}
	})
}
