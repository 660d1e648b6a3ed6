// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/localstack"
)

// rackPlan approves two workers, one by its serial number and one by its UUID.
const rackPlan = `apiVersion: cli.ichor.maesh.dev/v1alpha1
kind: ApprovalPlan
defaults:
  clusterRef: {name: %s}
  role: worker
  nodeLabels: {example.com/rack: "1"}
  reason: rack 1
machines:
- serialNumber: %q
  hostname: rack-1
  installDisk: {serial: %q}
- uuid: %s
  hostname: rack-2
  installDisk: {serial: %q}
`

// rackFromFile approves two machines from one file. While anything is wrong with it, nothing is approved.
func rackFromFile(t *testing.T, s *suite) {
	all := s.take(t, 2)
	first, second := all[0], all[1]
	plan := fmt.Sprintf(rackPlan, localstack.ClusterName, first.Spec.Identity.SerialNumber, s.systemSerial(t, first), second.Spec.Identity.UUID, s.systemSerial(t, second))
	controlPlane := s.at(t, s.stack.Fleet().Machines[0].Addr())
	room := s.roomForOneControlPlane(t)

	for _, test := range []struct {
		name, from, to string
		status         int
		says           []string
	}{
		{"a disk of the other machine", s.systemSerial(t, first), s.systemSerial(t, second), 2, []string{
			"plan.yaml:11: serialNumber " + first.Spec.Identity.SerialNumber + ": installDisk: the machine has no disk with that", second.Name,
		}},
		{"a field that there isn't", "hostname: rack-2", "hostnam: rack-2", 2, []string{`plan.yaml:13: machines[1]: unknown field "hostnam"; did you mean hostname?`}},
		{"a hostname that another machine has, which the server knows", "rack-2", controlPlane.Spec.Hostname, 5, []string{"plan.yaml:13: uuid " + second.Spec.Identity.UUID + ": hostname: ", "is the hostname of machine " + controlPlane.Name}},
		{"two control planes where there is room for one", "role: worker", "role: controlplane", 5, []string{fmt.Sprintf("the plan makes 2 control planes of cluster %q, which has %d of at most %d: there is room for 1", localstack.ClusterName, room-1, room)}},
	} {
		r := s.approveFile(t, strings.Replace(plan, test.from, test.to, 1), "--yes")
		if r.status != test.status || r.out != "" {
			t.Errorf("%s: status %d, want %d; it said\n%s%s", test.name, r.status, test.status, r.out, r.err)
		}
		for _, want := range test.says {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s: standard error has no %q:\n%s", test.name, want, r.err)
			}
		}
		s.expectUntouched(t, all)
	}

	if r := s.approveFile(t, plan, "--dry-run=server"); r.status != 0 || strings.Count(r.out, "approved (server dry run)\n") != 2 {
		t.Errorf("dry run: status %d\n%s%s", r.status, r.out, r.err)
	}
	s.expectUntouched(t, all)

	if r := s.approveFile(t, plan, "--yes", "--wait", "--timeout", bound(90*time.Second).String()); r.status != 0 || strings.Count(r.out, " approved\n") != 2 {
		t.Fatalf("status %d\n%s%s", r.status, r.out, r.err)
	}
	for i, m := range all {
		current := s.get(t, m.Name)
		s.expectNode(t, current, "rack-"+strconv.Itoa(i+1))
		s.expectApprovedDisk(t, current)
		s.expectOneApply(t, current)
		if approval := current.Spec.Approval; approval.By != "operator" || approval.Reason != "rack 1" || current.Spec.NodeLabels["example.com/rack"] != "1" {
			t.Errorf("machine %s: approval %+v, labels %v", m.Name, approval, current.Spec.NodeLabels)
		}
	}

	if r := s.approveFile(t, plan, "--yes"); r.status != 0 || strings.Count(r.out, " unchanged\n") != 2 {
		t.Errorf("the same file again: status %d\n%s%s", r.status, r.out, r.err)
	}
	if r := s.approveFile(t, strings.Replace(plan, "hostname: rack-1", "hostname: rack-9", 1), "--yes"); r.status != 5 || !strings.Contains(r.err, "approved with rack-1, the plan says rack-9") {
		t.Errorf("another hostname: status %d\n%s%s", r.status, r.out, r.err)
	}
}

// approveFile approves as the operator with the text as plan.yaml.
func (s *suite) approveFile(t *testing.T, text string, flags ...string) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.run(t, s.stack.Dir().KubeconfigOf("operator"), "ichor", append([]string{"machine", "approve", "-f", file}, flags...)...)
}

// roomForOneControlPlane sets the count of control planes so that one more can be approved, and returns how many can be.
func (s *suite) roomForOneControlPlane(t *testing.T) int {
	t.Helper()
	held := len(s.cluster(t).Status.ControlPlaneSlots)
	patch := []byte(`{"spec":{"controlPlane":{"count":` + strconv.Itoa(held) + `}}}`)
	if _, err := s.operator.IchorV1alpha1().TalosClusters().Patch(t.Context(), localstack.ClusterName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if counts := s.cluster(t).Status.ControlPlanes; int(counts.Limit) != held+1 {
			return fmt.Errorf("control planes: %+v, want a limit of %d", counts, held+1)
		}
		return nil
	})
	return held + 1
}

func (s *suite) expectUntouched(t *testing.T, all []*v1alpha1.TalosMachine) {
	t.Helper()
	for _, m := range all {
		if current := s.get(t, m.Name); current.Spec.ApprovalState != v1alpha1.ApprovalPending || current.Generation != m.Generation {
			t.Fatalf("machine %s is %s, its generation %d, was %d", m.Name, current.Spec.ApprovalState, current.Generation, m.Generation)
		}
	}
}
