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
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/node"
)

// console is what stands on a machine's console, and what was seen on its wire.
func (s *suite) console(t *testing.T, m *v1alpha1.TalosMachine) node.Status {
	t.Helper()
	return s.consoleOf(t, s.hardware(t, m))
}

func (s *suite) consoleOf(t *testing.T, m *fleet.Machine) node.Status {
	t.Helper()
	status, err := s.stack.Machines().Status(t.Context(), m.Name)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// applies is the machine's own log of configurations.
func (s *suite) applies(t *testing.T, m *v1alpha1.TalosMachine) []node.Apply {
	t.Helper()
	applies, err := s.stack.Machines().Applies(t.Context(), s.hardware(t, m).Name)
	if err != nil {
		t.Fatal(err)
	}
	return applies
}

// newCertificate has a machine in maintenance mode present another certificate and returns its fingerprint.
func (s *suite) newCertificate(t *testing.T, m *v1alpha1.TalosMachine) string {
	t.Helper()
	before := s.console(t, m).Fingerprint
	if _, err := s.stack.Machines().Do(t.Context(), "certificate", s.hardware(t, m).Name); err != nil {
		t.Fatal(err)
	}
	after := ""
	eventually(t, 30*time.Second, func() error {
		status := s.console(t, m)
		if !status.Listening || status.Fingerprint == "" || status.Fingerprint == before {
			return fmt.Errorf("the console shows the fingerprint %q", status.Fingerprint)
		}
		after = status.Fingerprint
		return nil
	})
	return after
}

// contacts counts the connections that every machine in maintenance mode has seen.
func (s *suite) contacts(t *testing.T) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	all := s.stack.Fleet().Machines
	for i := range all {
		if status := s.consoleOf(t, &all[i]); status.Mode == node.ModeMaintenance {
			out[status.Name] = status.Connections
		}
	}
	return out
}

// moreContacts is nil once every machine was contacted at least this often again.
func moreContacts(before, after map[string]uint64, times uint64) error {
	for name, count := range before {
		if after[name] < count+times {
			return fmt.Errorf("machine %s was contacted %d times, then %d times", name, count, after[name])
		}
	}
	return nil
}

// nobodyOf is nil if no process has the folder in its arguments.
func nobodyOf(dir string) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), dir) {
			return fmt.Errorf("%s still runs: %s", filepath.Base(filepath.Dir(file)), strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return nil
}
