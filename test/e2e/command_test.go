// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// commandFor bounds a command.
const commandFor = 2 * time.Minute

// result is what a command said.
type result struct {
	out, err string
	status   int
}

// run runs a program of the stack as the owner of a kubeconfig. Standard input is empty, standard output no terminal.
func (s *suite) run(t *testing.T, kubeconfig, program string, args ...string) result {
	t.Helper()
	return s.runWith(t, kubeconfig, nil, "", program, args...)
}

func (s *suite) runWith(t *testing.T, kubeconfig string, environment []string, input, program string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound(commandFor))
	defer cancel()
	c := exec.CommandContext(ctx, s.stack.Program(program), args...)
	c.Env = append(os.Environ(), append(environment, "KUBECONFIG="+kubeconfig, "NO_COLOR=1")...)
	c.Stdin = strings.NewReader(input)
	var out, err bytes.Buffer
	c.Stdout, c.Stderr = &out, &err
	failed := c.Run()
	var exit *exec.ExitError
	if failed != nil && !errors.As(failed, &exit) {
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), failed)
	}
	return result{out.String(), err.String(), c.ProcessState.ExitCode()}
}

// must runs a program that has to succeed and returns what it printed.
func (s *suite) must(t *testing.T, kubeconfig, program string, args ...string) string {
	t.Helper()
	r := s.run(t, kubeconfig, program, args...)
	if r.status != 0 {
		t.Fatalf("%s %s: status %d\n%s%s", program, strings.Join(args, " "), r.status, r.out, r.err)
	}
	return r.out
}
