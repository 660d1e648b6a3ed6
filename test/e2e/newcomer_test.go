// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// newcomer types what `make run` printed, line by line in one shell that stops at the first failure.
func newcomer(t *testing.T, s *suite) {
	var commands []string
	for _, suggestion := range s.stack.Suggestions() {
		commands = append(commands, suggestion.Command)
	}
	shell(t, commands)
	if err := s.kubernetes.AppsV1().Deployments(metav1.NamespaceDefault).Delete(t.Context(), "hello", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	m := s.at(t, s.stack.Fleet().Machines[1].Addr())
	if m.Spec.Approval == nil || m.Spec.Approval.By != "operator" {
		t.Errorf("the approval says %+v, want it by operator", m.Spec.Approval)
	}
	s.expectNode(t, m, "worker-1")
	s.expectApprovedDisk(t, m)
	s.expectOneApply(t, m)
}

// shell runs what a newcomer is told to type, in one shell that stops at the first failure.
func shell(t *testing.T, commands []string) {
	t.Helper()
	script := "set -e\n"
	for _, command := range commands {
		script += "echo '$ " + strings.ReplaceAll(command, "'", `'\''`) + "'\n" + command + "\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound(3*time.Minute))
	defer cancel()
	output, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("what was printed fails: %v\n%s", err, output)
	}
	for _, want := range []string{"FIELDS:", "addressing", "worker-1", "condition met", "deployment.apps/hello condition met", `"subresource":"approval"`} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output has no %q:\n%s", want, output)
		}
	}
}

// expectNode checks that the machine became a Node of this name that is Ready.
func (s *suite) expectNode(t *testing.T, m *v1alpha1.TalosMachine, name string) {
	t.Helper()
	node, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := false
	for _, c := range node.Status.Conditions {
		ready = ready || c.Type == "Ready" && c.Status == "True"
	}
	if !ready || node.Status.NodeInfo.SystemUUID != m.Spec.Identity.UUID || m.Status.NodeName != name {
		t.Errorf("node %s: ready %v, system UUID %s, nodeName of the machine %q; want the machine %s",
			name, ready, node.Status.NodeInfo.SystemUUID, m.Status.NodeName, m.Name)
	}
}

// expectApprovedDisk checks on all sides that Talos is installed on the disk that was approved.
func (s *suite) expectApprovedDisk(t *testing.T, m *v1alpha1.TalosMachine) {
	t.Helper()
	approved := ""
	for _, disk := range m.Spec.Disks {
		if disk.Role == v1alpha1.DiskSystem {
			approved = disk.Match.Serial
		}
	}
	installed := s.console(t, m).Installed
	if approved == "" || m.Status.SystemDisk == nil || m.Status.SystemDisk.Serial != approved || installed == nil || installed.Serial != approved {
		t.Errorf("machine %s: approved disk %q, status says %+v, the machine itself %+v", m.Name, approved, m.Status.SystemDisk, installed)
	}
}

// expectOneApply checks the machine's own log: it took exactly one configuration.
func (s *suite) expectOneApply(t *testing.T, m *v1alpha1.TalosMachine) {
	t.Helper()
	accepted := 0
	applies := s.applies(t, m)
	for _, apply := range applies {
		if apply.Accepted && !apply.DryRun {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("machine %s took %d configurations, want 1: %+v", m.Name, accepted, applies)
	}
}
