// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// auditedApproval approves one machine as oneself and one in somebody's name, and looks both up in the audit log of the
// kube-apiserver.
func auditedApproval(t *testing.T, s *suite) {
	s.bind(t, "alice", artifacts.RoleOperator)
	tests := []struct {
		name, kubeconfig  string
		as                []string
		user, inTheNameOf string
		recorded          string
	}{
		{name: "the operator himself", kubeconfig: s.stack.Dir().KubeconfigOf("operator"), user: "operator", recorded: "operator"},
		{name: "the administrator as alice", kubeconfig: s.stack.Dir().Kubeconfig(), as: []string{"--as", "alice"}, user: "admin", inTheNameOf: "alice", recorded: "alice"},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := s.take(t, 1)[0]
			s.hold(t, m.Name)
			args := append(slices.Clone(test.as), "machine", "approve", m.Name, "--role", "worker", "--install-disk", s.systemSerial(t, m), "--hostname", fmt.Sprintf("audited-%d", i), "--yes", "--wait=false")
			s.must(t, test.kubeconfig, "ichor", args...)
			if approval := s.get(t, m.Name).Spec.Approval; approval == nil || approval.By != test.recorded || approval.At == nil {
				t.Fatalf("the approval says %+v, want it by %s", approval, test.recorded)
			}
			event := s.auditEvent(t, func(e *auditv1.Event) bool {
				return e.ObjectRef != nil && e.ObjectRef.Name == m.Name && e.ObjectRef.Subresource == "approval" &&
					(e.Verb == "update" || e.Verb == "patch") && e.Stage == auditv1.Stage("ResponseComplete") && e.ResponseStatus != nil && e.ResponseStatus.Code == 200
			})
			if event.ObjectRef.APIGroup != v1alpha1.GroupName || event.ObjectRef.Resource != "talosmachines" {
				t.Errorf("the event is about %+v", event.ObjectRef)
			}
			impersonated := ""
			if event.ImpersonatedUser != nil {
				impersonated = event.ImpersonatedUser.Username
			}
			if event.User.Username != test.user || impersonated != test.inTheNameOf {
				t.Errorf("the event says user %q in the name of %q, want %q in the name of %q", event.User.Username, impersonated, test.user, test.inTheNameOf)
			}
			s.expectOwnEvent(t, event)
		})
	}
}

// auditEvent waits for an event in the gathered audit log of the kube-apiservers.
func (s *suite) auditEvent(t *testing.T, wanted func(*auditv1.Event) bool) *auditv1.Event {
	t.Helper()
	return findEvent(t, wanted, s.stack.Dir().AuditLog())
}

// expectOwnEvent checks that one of the ichor-apiservers has the same event, with what was asked and answered.
func (s *suite) expectOwnEvent(t *testing.T, event *auditv1.Event) {
	t.Helper()
	var logs []string
	for n := range s.stack.Replicas() {
		logs = append(logs, s.stack.APIServerAuditLog(n))
	}
	own := findEvent(t, func(e *auditv1.Event) bool { return e.AuditID == event.AuditID }, logs...)
	if own.RequestObject == nil || own.ResponseObject == nil {
		t.Errorf("ichor-apiserver's event %s has no bodies: level %s", own.AuditID, own.Level)
	}
}

func findEvent(t *testing.T, wanted func(*auditv1.Event) bool, logs ...string) *auditv1.Event {
	t.Helper()
	var found *auditv1.Event
	eventually(t, 20*time.Second, func() error {
		for _, log := range logs {
			if found = scanEvents(t, log, wanted); found != nil {
				return nil
			}
		}
		return fmt.Errorf("no such event in %v", logs)
	})
	return found
}

func scanEvents(t *testing.T, log string, wanted func(*auditv1.Event) bool) *auditv1.Event {
	t.Helper()
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		// The last line may still be being written.
		if err := json.Unmarshal(lines.Bytes(), &event); err == nil && wanted(&event) {
			return &event
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return nil
}
