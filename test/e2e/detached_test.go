// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"maesh.dev/ichor/test/localstack"
	"maesh.dev/ichor/test/localstack/state"
)

// detachedStack uses the command itself, beside the stack that runs already: up, status, env, down. Its cluster is let go in
// between.
func detachedStack(t *testing.T, s *suite) {
	// Paths of sockets are short; those of Go's temporary folders aren't.
	folder, err := os.MkdirTemp("", "ichor-e2e-second-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(folder, "stack")
	printed := s.must(t, "", "localstack", "up", "--state", dir, "--machines", "2", "--detach")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound(stopFor)) // the story's own has ended
		defer cancel()
		if _, err := localstack.Down(ctx, state.Dir(dir)); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"kubeconfig", "viewer.kubeconfig", "operator.kubeconfig", "talosconfig", "audit.log", "ready", "logs/ichor-apiserver-1.log"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if out := s.must(t, "", "localstack", "status", "--state", dir); !strings.Contains(out, "ready since") {
		t.Errorf("status says %q", out)
	}
	if out := s.must(t, "", "localstack", "env", "--state", dir); !strings.Contains(out, "export KUBECONFIG="+filepath.Join(dir, "kubeconfig")) {
		t.Errorf("env says %q", out)
	}
	if commands := commandsIn(printed); len(commands) < 8 {
		t.Errorf("it printed the commands %q:\n%s", commands, printed)
	} else {
		shell(t, commands)
	}
	if out := s.must(t, filepath.Join(dir, "viewer.kubeconfig"), "kubectl", "get", "talosmachines", "-o", "name"); strings.Count(out, "\n") != 2 {
		t.Errorf("the second stack has the machines %q, want two", out)
	}
	if r := s.run(t, "", "localstack", "up", "--state", dir); r.status == 0 || !strings.Contains(r.err, "down") {
		t.Errorf("a second up in the same folder: status %d, %q", r.status, r.err)
	}
	clusterLetGo(t, s, state.Dir(dir))
	expectNoTrace(t, s, state.Dir(dir))
}

// commandsIn are the lines after comments: what a person copies.
func commandsIn(printed string) []string {
	var out []string
	lines := strings.Split(printed, "\n")
	for i, line := range lines[:len(lines)-1] {
		if strings.HasPrefix(line, "# ") {
			out = append(out, lines[i+1])
		}
	}
	return out
}

// expectNoTrace ends a stack and checks that exactly its processes are gone.
func expectNoTrace(t *testing.T, s *suite, dir state.Dir) {
	t.Helper()
	mine := processes(t, dir)
	if len(mine) < 4 {
		t.Errorf("the stack has the processes %+v, want at least four", mine)
	}
	s.must(t, "", "localstack", "down", "--state", string(dir))
	eventually(t, 10*time.Second, func() error { return nobodyOf(string(dir)) })
	for _, p := range processes(t, s.stack.Dir()) {
		if !p.Alive() {
			t.Errorf("%s of the first stack is gone", p.Name)
		}
	}
	if r := s.run(t, "", "localstack", "status", "--state", string(dir)); r.status != 1 || !strings.Contains(r.out, "not running") {
		t.Errorf("status after down: %d %q", r.status, r.out)
	}
}

func processes(t *testing.T, dir state.Dir) []state.Process {
	t.Helper()
	all, err := dir.Processes()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
