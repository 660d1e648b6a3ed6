// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/localstack"
)

// patchCommands brings a patch to a worker and looks at it as a person types it, and ends as everything was before.
func patchCommands(t *testing.T, s *suite) {
	const name, line = "typed", `vm.max_map_count: "262144"`
	admin, viewer := s.stack.Dir().Kubeconfig(), s.stack.Dir().KubeconfigOf("viewer")
	worker := s.readyWorker(t)
	host := worker.Spec.Hostname
	file := filepath.Join(t.TempDir(), "typed.yaml")
	manifest := fmt.Sprintf(`apiVersion: ichor.maesh.dev/v1alpha1
kind: TalosConfigPatch
metadata: {name: %s}
spec:
  target: {clusterRef: {name: %s}, machineNames: [%q]}
  machine: {sysctls: {vm.max_map_count: "262144"}}
`, name, localstack.ClusterName, worker.Name)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	expect := func(kubeconfig string, status int, words []string, args ...string) {
		t.Helper()
		r := s.run(t, kubeconfig, "ichor", args...)
		if r.status != status {
			t.Errorf("ichor %s: status %d, want %d\n%s%s", strings.Join(args, " "), r.status, status, r.out, r.err)
			return
		}
		for _, word := range words {
			if !strings.Contains(r.out+r.err, word) {
				t.Errorf("ichor %s doesn't say %q:\n%s%s", strings.Join(args, " "), word, r.out, r.err)
			}
		}
	}
	expect(admin, 1, []string{"+        " + line, "1 machine"}, "patch", "diff", "-f", file)
	expect(admin, 0, []string{line, "hostname: " + host}, "patch", "render", "-f", file, "--machine", host)
	expect(admin, 2, []string{"--yes"}, "patch", "apply", "-f", file)
	expect(viewer, 4, nil, "patch", "apply", "-f", file, "--yes")
	expect(admin, 0, []string{name, "applied"}, "patch", "apply", "-f", file, "--yes", "--wait", "--timeout", bound(3*time.Minute).String())
	expect(admin, 0, []string{"unchanged"}, "patch", "apply", "-f", file, "--yes", "--wait=false")
	expect(viewer, 0, []string{name}, "patch", "list")
	expect(viewer, 0, []string{name, "vm.max_map_count"}, "patch", "show", name)
	expect(admin, 0, nil, "patch", "diff", "-f", file)
	expect(viewer, 1, []string{"-        " + line}, "patch", "diff", name)
	expect(viewer, 0, []string{line, `token: '***'`}, "machine", "config", host)
	expect(viewer, 0, []string{"vm.max_map_count", name}, "machine", "config", host, "--provenance")
	expect(viewer, 0, []string{name}, "machine", "config", "history", host)
	expect(viewer, 1, []string{"+        " + line}, "machine", "config", "diff", host)
	expect(viewer, 0, nil, "machine", "drift", host)
	s.changeByHand(t, worker, line, `vm.max_map_count: "7"`)
	s.awaitDrift(t, worker, 1)
	expect(viewer, 1, []string{"vm.max_map_count", "262144", "7"}, "machine", "drift", host)
	s.changeByHand(t, worker, `vm.max_map_count: "7"`, line)
	s.awaitDrift(t, worker, 0)
	expect(viewer, 0, nil, "machine", "drift", host)
	s.must(t, admin, "kubectl", "delete", "talosconfigpatch", name)
	eventually(t, 3*time.Minute, func() error {
		if strings.Contains(string(s.running(t, worker)), "vm.max_map_count") {
			return fmt.Errorf("machine %s still runs with the patch", worker.Name)
		}
		return nil
	})
	s.waitReady(t, 2*time.Minute, worker.Name)
}

// awaitDrift waits until a machine is said to differ in so many places.
func (s *suite) awaitDrift(t *testing.T, m *v1alpha1.TalosMachine, count int32) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		if config := s.get(t, m.Name).Status.Config; config == nil || config.DriftCount != count {
			return fmt.Errorf("machine %s has %+v, want %d places that differ", m.Name, config, count)
		}
		return nil
	})
}
