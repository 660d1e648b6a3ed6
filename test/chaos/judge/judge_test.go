// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/chaos/judge"
)

const own = "talosconfigpatches/own"

// stored is an object as it is in etcd, with markers.
func stored(t *testing.T, uid string, priority int32, markers ...string) []byte {
	t.Helper()
	p := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Annotations: map[string]string{"marker": strings.Join(markers, " ")}}}
	p.Spec.Priority = &priority
	return encoded(t, p)
}

func encoded(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func answered(revision string) metav1.Object { return &metav1.ObjectMeta{ResourceVersion: revision} }

// story is what writers were told, and what etcd has.
type story func(t *testing.T, l *judge.Ledger) []judge.Event

func TestTheLedgerIsHeldAgainstWhatIsStored(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection reset by peer")
	conflict := apierrors.NewConflict(v1alpha1.Resource("talosconfigpatches"), "own", errors.New("moved"))
	tests := map[string]struct {
		story story
		want  string // empty: no fault
	}{
		"an acknowledged write that is there": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			a := l.Begin(own, 1)
			l.Settle(a, answered("5"), nil)
			return []judge.Event{{Key: own, Revision: 5, Value: stored(t, "u", 0, a.Marker)}}
		}, ""},
		"an acknowledged write that was never stored": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			l.Settle(l.Begin(own, 1), answered("5"), nil)
			return nil
		}, "acknowledged with resourceVersion 5"},
		"another one is stored at its revision": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			a, b := l.Begin(own, 1), l.Begin(own, 1)
			l.Settle(a, answered("5"), nil)
			l.Settle(b, nil, lost)
			return []judge.Event{{Key: own, Revision: 5, Value: stored(t, "u", 0, b.Marker)}}
		}, "acknowledged with resourceVersion 5"},
		"a write that was taken back": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			a, b := l.Begin(own, 1), l.Begin(own, 1)
			l.Settle(a, answered("5"), nil)
			l.Settle(b, answered("6"), nil)
			return []judge.Event{
				{Key: own, Revision: 5, Value: stored(t, "u", 0, a.Marker)}, {Key: own, Revision: 6, Value: stored(t, "u", 0, b.Marker)},
				{Key: own, Revision: 7, Value: stored(t, "u", 0, a.Marker)},
			}
		}, "was acknowledged last"},
		"a write whose answer was lost and that came late": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			a, b := l.Begin(own, 1), l.Begin(own, 1)
			l.Settle(a, nil, lost)
			l.Settle(b, answered("6"), nil)
			return []judge.Event{{Key: own, Revision: 6, Value: stored(t, "u", 0, b.Marker)}, {Key: own, Revision: 7, Value: stored(t, "u", 0, a.Marker)}}
		}, ""},
		"a write that was refused and is stored": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			a := l.Begin(own, 1)
			l.Settle(a, nil, conflict)
			return []judge.Event{{Key: own, Revision: 6, Value: stored(t, "u", 0, a.Marker)}}
		}, "which was refused"},
		"an object that is gone and that nobody deleted": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			a := l.Begin(own, 1)
			l.Settle(a, answered("5"), nil)
			return []judge.Event{{Key: own, Revision: 5, Value: stored(t, "u", 0, a.Marker)}, {Key: own, Revision: 6}}
		}, "nobody deletes it"},
		"a deletion that was acknowledged and didn't happen": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			l.Settle(l.BeginDeletion(own, "u", false), nil, nil)
			return []judge.Event{{Key: own, Revision: 5, Value: stored(t, "u", 0)}}
		}, "its deletion was acknowledged"},
		"an object that lives again": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			return []judge.Event{{Key: own, Revision: 5, Value: stored(t, "u", 0)}, {Key: own, Revision: 6}, {Key: own, Revision: 7, Value: stored(t, "u", 0)}}
		}, "lives again"},
		"an object that is written over by another": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			return []judge.Event{{Key: own, Revision: 5, Value: stored(t, "u", 0)}, {Key: own, Revision: 6, Value: stored(t, "other", 0)}}
		}, "written over"},
		"a step of the counter that another one hides": {func(t *testing.T, l *judge.Ledger) []judge.Event {
			for n, revision := range []string{"5", "6", "7"} {
				l.Settle(l.Begin(judge.Counter, n), answered(revision), nil)
			}
			return []judge.Event{
				{Key: judge.Counter, Revision: 5, Value: stored(t, "u", 0, "w00-000000")}, {Key: judge.Counter, Revision: 6, Value: stored(t, "u", 1, "w01-000001")},
				{Key: judge.Counter, Revision: 7, Value: stored(t, "u", 1, "w02-000002")},
			}
		}, "the counter is at 1"},
		"what a writer has seen with his own eyes": {func(_ *testing.T, l *judge.Ledger) []judge.Event {
			l.Fault("an old answer")
			return nil
		}, "an old answer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ledger := judge.NewLedger()
			expect(t, ledger, test.story(t, ledger), test.want)
		})
	}
}

func expect(t *testing.T, ledger *judge.Ledger, events []judge.Event, want string) {
	t.Helper()
	j := judge.New(ledger)
	for _, e := range events {
		j.See(e)
	}
	got := strings.Join(j.Close().Faults, "\n")
	if (got == "") != (want == "") || !strings.Contains(got, want) {
		t.Errorf("faults %q, want %q", got, want)
	}
}

const uuid = "4c4c4544-0051-3610-8052-b4c04f4c0001"

func stage(uid, hostname string, change func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: uuid, UID: types.UID(uid)}}
	m.Spec.Identity = v1alpha1.MachineIdentity{UUID: uuid, MACAddresses: []string{"02:00:00:00:00:01"}}
	m.Spec.Hostname, m.Status.MaintenanceFingerprint = hostname, "seen"
	m.Spec.ApprovalState = v1alpha1.ApprovalPending
	if change != nil {
		m.Spec.ApprovalState, m.Spec.Role = v1alpha1.ApprovalApproved, v1alpha1.RoleControlPlane
		m.Spec.Approval = &v1alpha1.MachineApproval{By: "alice", At: &metav1.Time{Time: time.Unix(1, 0)}, MaintenanceFingerprint: "seen"}
		change(m)
	}
	return m
}

func TestEveryRevisionKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	cluster := func(count int32, holders ...string) *v1alpha1.TalosCluster {
		c := &v1alpha1.TalosCluster{}
		c.Spec.ControlPlane.Count = count
		for _, uid := range holders {
			c.Status.ControlPlaneSlots = append(c.Status.ControlPlaneSlots, v1alpha1.ControlPlaneSlot{MachineUID: types.UID(uid), Hostname: "cp"})
		}
		return c
	}
	as := func(*v1alpha1.TalosMachine) {}
	tests := map[string]struct {
		objects []any
		want    string
	}{
		"approved with a slot": {[]any{stage("u", "", nil), cluster(1, "u"), stage("u", "cp", as)}, ""},
		"approved without one": {[]any{stage("u", "", nil), cluster(1), stage("u", "cp", as)}, "holds a slot: false"},
		"more than the limit":  {[]any{stage("u", "", nil), cluster(0, "u", "v"), stage("u", "cp", as)}, "the limit is 1"},
		"approved by nobody": {[]any{stage("u", "", nil), cluster(1, "u"), stage("u", "cp", func(m *v1alpha1.TalosMachine) { m.Spec.Approval.By = "" })},
			"approved by nobody"},
		"approved with another certificate": {[]any{stage("u", "", nil), cluster(1, "u"), stage("u", "cp", func(m *v1alpha1.TalosMachine) { m.Spec.Approval.MaintenanceFingerprint = "other" })},
			`with the certificate "other"`},
		"approved from the start":     {[]any{cluster(1, "u"), stage("u", "cp", as)}, "from the start"},
		"an approval that is undone":  {[]any{stage("u", "", nil), cluster(1, "u"), stage("u", "cp", as), stage("u", "cp", nil)}, "was approved as controlplane"},
		"an identity that changes":    {[]any{stage("u", "", nil), cluster(1, "u"), stage("u", "cp", func(m *v1alpha1.TalosMachine) { m.Spec.Identity.SerialNumber = "2" })}, "changes its identity"},
		"a name that isn't the UUID":  {[]any{func() any { m := stage("u", "", nil); m.Spec.Identity.UUID = "else"; return m }()}, "has the UUID else"},
		"a machine that is made anew": {[]any{stage("u", "", nil), nil, stage("v", "", nil)}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events []judge.Event
			for n, object := range test.objects {
				e := judge.Event{Key: "talosmachines/" + uuid, Revision: int64(n)}
				if object != nil {
					e.Value = encoded(t, object)
				}
				if _, is := object.(*v1alpha1.TalosCluster); is {
					e.Key = "talosclusters/prod"
				}
				events = append(events, e)
			}
			expect(t, judge.NewLedger(), events, test.want)
		})
	}
}

func TestWhatAnAnswerSaysOfAWrite(t *testing.T) {
	t.Parallel()
	status := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: metav1.StatusReason(http.StatusText(int(code)))}}
	}
	for _, test := range []struct {
		err  error
		want judge.Outcome
	}{
		{nil, judge.Acknowledged}, {status(409), judge.Refused}, {status(403), judge.Refused}, {status(429), judge.Refused},
		{status(500), judge.Unknown}, {status(503), judge.Unknown}, {status(504), judge.Unknown}, {errors.New("EOF"), judge.Unknown},
	} {
		if got := judge.OutcomeOf(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}
