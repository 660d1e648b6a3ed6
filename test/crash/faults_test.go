// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/chaos/operations"
)

// away are words for a machine, or its etcd, that doesn't answer: an operation whose patience is over says them.
var away = []string{"answer", "not done after", "etcd", "Ready", "boot id", "connection", "deadline"}

// trouble is a kind of fault.
type trouble struct {
	what string
	// seconds is how long it lasts, at least and at most.
	least, most int
	explains    []string
	begin, end  func(s *soak, m *v1alpha1.TalosMachine) error
}

func commanded(begin, end []string) (do, undo func(*soak, *v1alpha1.TalosMachine) error) {
	tell := func(words []string) func(*soak, *v1alpha1.TalosMachine) error {
		return func(s *soak, m *v1alpha1.TalosMachine) error {
			_, err := s.stack.Machines().Do(s.t.Context(), words[0], s.hardware(s.t, m.Name).Name, words[1:]...)
			return err
		}
	}
	return tell(begin), tell(end)
}

func command(what string, least, most int, explains, begin, end []string) trouble {
	do, undo := commanded(begin, end)
	return trouble{what, least, most, explains, do, undo}
}

func nothing(*soak, *v1alpha1.TalosMachine) error { return nil }

// troubles are all kinds of faults.
func troubles() []trouble {
	return []trouble{
		command(operations.FaultPower, 2, 8, away, []string{"power-off"}, []string{"power-on"}),
		command("slow", 5, 15, away, []string{"slow", "2s"}, []string{"slow", "0s"}),
		command("network", 5, 20, away, []string{"hang-tls", "on"}, []string{"hang-tls", "off"}),
		command("fail-install", 10, 30, []string{"installer"}, []string{"fail-install", "on"}, []string{"fail-install", "off"}),
		command("fail-pull", 10, 30, []string{"pull", "image"}, []string{"fail-pull", "missing"}, []string{"fail-pull", "off"}),
		{"etcd killed", 0, 1, away, func(s *soak, m *v1alpha1.TalosMachine) error {
			s.noted[m.Name] = append(s.noted[m.Name], time.Now())
			return s.signal(m, "hollow-child", syscall.SIGKILL)
		}, nothing},
		{"etcd paused", 3, 8, away, func(s *soak, m *v1alpha1.TalosMachine) error { return s.signal(m, "hollow-child", syscall.SIGSTOP) },
			func(s *soak, m *v1alpha1.TalosMachine) error { return s.signal(m, "hollow-child", syscall.SIGCONT) }},
		{"kube-apiserver killed", 0, 1, nil, func(s *soak, m *v1alpha1.TalosMachine) error { return s.signal(m, "kube-apiserver", syscall.SIGKILL) }, nothing},
		{"ichor-apiserver killed", 0, 1, nil, func(s *soak, _ *v1alpha1.TalosMachine) error { return s.stack.APIServers()[0].Kill() }, nothing},
		{"controller killed", 0, 1, nil, func(s *soak, _ *v1alpha1.TalosMachine) error {
			return syscall.Kill(s.stack.Controllers()[0].PID(), syscall.SIGUSR1)
		}, nothing},
	}
}

// onControlPlanes tells whether a fault is one of control planes alone.
func (f trouble) onControlPlanes() bool {
	return strings.HasPrefix(f.what, "etcd") || strings.HasPrefix(f.what, "kube")
}

// signal sends a signal to a program of a machine. One that doesn't run has nothing to lose.
func (s *soak) signal(m *v1alpha1.TalosMachine, program string, signal syscall.Signal) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	folder := filepath.Join(s.dir, "machines", s.hardware(s.t, m.Name).Name) + "/"
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), folder) || !strings.Contains(string(line), program) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			_ = syscall.Kill(pid, signal) // one that has ended meanwhile is as good as hit
		}
	}
	return nil
}

// disturb ends the fault that is over, and begins another when it is time.
func (s *soak) disturb(t *testing.T) {
	t.Helper()
	now := time.Now()
	if s.current != nil && now.After(s.until) {
		s.mend(t)
	}
	if s.current != nil || now.Before(s.nextFault) {
		return
	}
	s.nextFault = now.Add(time.Duration(4+s.rng.IntN(12)) * time.Second)
	all := troubles()
	chosen, m := all[s.rng.IntN(len(all))], &s.members[s.rng.IntN(len(s.members))]
	if chosen.onControlPlanes() && m.Spec.Role != v1alpha1.RoleControlPlane {
		return
	}
	if (chosen.what == operations.FaultPower || chosen.onControlPlanes()) && !s.othersWell(t, m) {
		return // what takes a quorum away is another story
	}
	if err := chosen.begin(s, m); err != nil {
		t.Logf("%5.1fs %s of %s can't be: %v", s.seconds(), chosen.what, m.Spec.Hostname, err)
		return
	}
	t.Logf("%5.1fs fault: %s, %s", s.seconds(), chosen.what, m.Spec.Hostname)
	s.current, s.victim = &chosen, m
	s.until = now.Add(time.Duration(chosen.least+s.rng.IntN(chosen.most-chosen.least)) * time.Second)
	s.faults = append(s.faults, operations.Fault{What: chosen.what, Span: operations.Span{Machine: m.Name, From: now}, Explains: chosen.explains})
}

// othersWell tells whether the control planes besides one are on, and say that they are well.
func (s *soak) othersWell(t *testing.T, m *v1alpha1.TalosMachine) bool {
	t.Helper()
	for i := range s.members {
		if other := &s.members[i]; other.Name != m.Name && other.Spec.Role == v1alpha1.RoleControlPlane {
			console, err := s.stack.Machines().Status(t.Context(), s.hardware(t, other.Name).Name)
			if err != nil || !console.Powered || console.Stage != "running" || !console.Ready {
				return false
			}
		}
	}
	return true
}

// mend ends the fault that is.
func (s *soak) mend(t *testing.T) {
	t.Helper()
	if s.current == nil {
		return
	}
	if err := s.current.end(s, s.victim); err != nil {
		t.Error(fmt.Errorf("end %s of %s: %w", s.current.what, s.victim.Spec.Hostname, err))
	}
	s.faults[len(s.faults)-1].To = time.Now()
	s.current = nil
}
