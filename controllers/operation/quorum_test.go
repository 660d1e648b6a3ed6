// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// voters are the answers of so many control planes that are all well.
func voters(n int) []answer {
	var members []talos.EtcdMember
	for i := range n {
		members = append(members, talos.EtcdMember{ID: uint64(i + 1), Hostname: "cp-" + string(rune('1'+i))})
	}
	answers := make([]answer, n)
	for i := range answers {
		answers[i] = answer{status: talos.EtcdStatus{MemberID: uint64(i + 1), Leader: 1}, members: members}
	}
	return answers
}

func TestWhetherEtcdCanDoWithoutAMember(t *testing.T) {
	t.Parallel()
	silent := func(a []answer, i int) { a[i] = answer{err: errors.New("it is dead")} }
	for name, c := range map[string]struct {
		members int
		change  func([]answer)
		// why and whyMends are what keeps the first from going down, and from going down where that may be what mends it.
		why, whyMends string
	}{
		"all three are well":     {3, func([]answer) {}, "", ""},
		"the only one":           {1, func([]answer) {}, "", ""},
		"one of two":             {2, func([]answer) {}, "1 healthy voters of 2", "1 healthy voters of 2"},
		"its own doesn't answer": {3, func(a []answer) { silent(a, 0) }, "its etcd doesn't answer: it is dead", ""},
		"its own of five, and another one": {
			5, func(a []answer) { silent(a, 0); silent(a, 3) }, "its etcd doesn't answer", "isn't healthy",
		},
		"its own of two":                    {2, func(a []answer) { silent(a, 0) }, "its etcd doesn't answer", "1 healthy voters of 2"},
		"its own is the only one":           {1, func(a []answer) { silent(a, 0) }, "its etcd doesn't answer", "its etcd doesn't answer"},
		"its own knows no leader":           {3, func(a []answer) { a[0].status.Leader = 0 }, "cp-1 (1) isn't healthy", ""},
		"its own and another know none":     {3, func(a []answer) { a[0].status.Leader, a[1].status.Leader = 0, 0 }, "isn't healthy", "isn't healthy"},
		"another doesn't answer":            {3, func(a []answer) { silent(a, 1) }, "cp-2 (2) isn't healthy", "cp-2 (2) isn't healthy"},
		"its own was removed, and is dead":  {3, func(a []answer) { silent(a, 0); without(a, 1) }, "its etcd doesn't answer", ""},
		"its own was removed, and lives on": {3, func(a []answer) { without(a, 1) }, "etcd lists no member 1", "etcd lists no member 1"},
		"a learner, and its own is dead": {
			3, func(a []answer) { silent(a, 0); a[1].members[2].Learner = true }, "its etcd doesn't answer", "cp-3 is a learner",
		},
		"an alarm, and its own is dead": {
			3, func(a []answer) { silent(a, 0); a[1].alarms = []talos.EtcdAlarm{{MemberID: 3, Kind: "NOSPACE"}} }, "its etcd doesn't answer", "NOSPACE on member 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := voters(c.members)
			c.change(answers)
			for mends, want := range map[bool]string{false: c.why, true: c.whyMends} {
				got := judgeEtcd(answers[0], answers[1:], mends)
				if (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("mends %v: it says %q, want %q", mends, got, want)
				}
			}
		})
	}
}

// without takes a member off every list.
func without(answers []answer, id uint64) {
	for i := range answers {
		var left []talos.EtcdMember
		for _, member := range answers[i].members {
			if member.ID != id {
				left = append(left, member)
			}
		}
		answers[i].members = left
	}
}

// A control plane whose etcd died alone is rebooted to mend it: nothing that is counted on goes down with it.
func TestAControlPlaneWhoseEtcdDiedAloneIsRebooted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, 0)
	var died *talos.EtcdStatus
	r.node["cp-2"].Do(func(s *talostest.State) {
		died, s.Etcd = s.Etcd, nil
		again := s.OnReboot
		s.OnReboot = func(s *talostest.State) { s.Etcd = died; again(s) }
	})
	r.ready("cp-2", false)
	only := func(change func(*v1alpha1.TalosOperationSpec)) func(*v1alpha1.TalosOperationSpec) {
		return func(spec *v1alpha1.TalosOperationSpec) {
			change(spec)
			spec.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-2"}}
		}
	}
	r.create("other", func(spec *v1alpha1.TalosOperationSpec) {
		rebootAll(spec)
		spec.Machines = &v1alpha1.OperationMachines{Names: []string{"cp-3"}}
	})
	r.run("other", func(o *v1alpha1.TalosOperation) bool {
		return strings.Contains(o.Status.Message, "control plane cp-2 is not Ready")
	})
	r.control("other", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
	r.run("other", inPhase(v1alpha1.OperationCancelled))
	r.create("mend", only(rebootAll))
	r.run("mend", inPhase(v1alpha1.OperationSucceeded))
	if !maps.Equal(r.reboots(), map[string]int{"cp-2": 1}) {
		t.Errorf("rebooted %v", r.reboots())
	}
	r.asItWas()
}
