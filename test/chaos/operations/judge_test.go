// SPDX-License-Identifier: Apache-2.0

package operations

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func span(machine string, from, to int) Span {
	return Span{Machine: machine, From: after(from), To: after(to)}
}

// good is the history of a reboot of two control planes and a worker, one after the other.
func good() *History {
	h := &History{ControlPlanes: []string{"a", "b", "c"}}
	work := []Work{{span("a", 0, 30), 1}, {span("b", 30, 60), 1}, {span("w", 60, 90), 1}}
	for _, each := range work {
		at := int(each.From.Sub(noon).Seconds())
		h.Acts = append(h.Acts, Act{after(at + 10), each.Machine, ActToldReboot}, Act{after(at + 12), each.Machine, ActBoot})
	}
	h.Missed = []Span{span("a", 11, 20), span("b", 41, 50)}
	h.Operations = []Operation{{Name: "reboot-1", Kind: "reboot", Phase: "Succeeded", Work: work}}
	h.Left.Before, h.Left.After = Process{1, 100, 50}, Process{1, 120, 60}
	return h
}

func TestEachInvariantIsJudged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		forge func(h *History)
		// want are the first words of the violations, in order.
		want []string
	}{
		"a history as it should be": {forge: func(*History) {}},
		"a control plane is told while another one hasn't booted yet": {
			forge: func(h *History) { h.Acts[1].At = after(41) },
			want:  []string{"two control planes"},
		},
		"a control plane is told a second after another one": {
			forge: func(h *History) {
				h.Acts[0].At, h.Acts[1].At, h.Operations[0].Work[0].To, h.Missed = after(39), after(45), after(50), nil
			},
			want: []string{"two control planes"},
		},
		"a control plane is told long after the power of another one was cut": {
			forge: func(h *History) {
				h.Faults = append(h.Faults, Fault{What: FaultPower, Span: span("c", 30, 70)})
				h.Acts = append(h.Acts, Act{after(70), "c", ActBoot})
			},
			want: []string{"two control planes"},
		},
		"a control plane is told right when the power of another one is cut": {
			forge: func(h *History) {
				h.Faults = append(h.Faults, Fault{What: FaultPower, Span: span("c", 39, 70)})
				h.Acts = append(h.Acts, Act{after(70), "c", ActBoot})
			},
		},
		"a worker is told while a control plane is down": {
			forge: func(h *History) {
				h.Faults = append(h.Faults, Fault{What: FaultPower, Span: span("c", 62, 90)})
				h.Acts = append(h.Acts, Act{after(88), "c", ActBoot})
			},
		},
		"a control plane is told while the etcd of another one isn't back": {
			forge: func(h *History) { h.Missed[0].To = after(55) },
			want:  []string{"quorum"},
		},
		"a control plane is told while the etcd of another one never comes back": {
			forge: func(h *History) { h.Missed[0].To = time.Time{} },
			want:  []string{"quorum"},
		},
		"a control plane is told right when the etcd of another one stops": {
			forge: func(h *History) { h.Missed = append(h.Missed, span("c", 38, 55)) },
		},
		"a control plane whose own etcd is broken is told": {
			forge: func(h *History) { h.Missed[1].From = after(31) },
		},
		"a machine is told twice": {
			forge: func(h *History) { h.Acts = append(h.Acts, Act{after(75), "w", ActToldReboot}) },
			want:  []string{"once"},
		},
		"a machine is told twice, and somebody had that tried again": {
			forge: func(h *History) {
				h.Acts = append(h.Acts, Act{after(75), "w", ActToldReboot})
				h.Operations[0].Work[2].Allowed = 2
			},
		},
		"a machine is installed twice": {
			forge: func(h *History) {
				h.Acts = append(h.Acts, Act{after(63), "w", ActInstaller}, Act{after(66), "w", ActInstaller})
			},
			want: []string{"once"},
		},
		"a machine is told though no operation works on it": {
			forge: func(h *History) { h.Acts = append(h.Acts, Act{after(120), "w", ActToldShutdown}) },
			want:  []string{"unasked"},
		},
		"an operation never ends": {
			forge: func(h *History) { h.Operations[0].Phase = "Running" },
			want:  []string{"end"},
		},
		"an operation ends as cancelled, which nobody asked for": {
			forge: func(h *History) { h.Operations[0].Phase = "Cancelled" },
			want:  []string{"end"},
		},
		"an operation that somebody cancelled": {
			forge: func(h *History) { h.Operations[0].Phase, h.Operations[0].CancelAsked = "Cancelled", true },
		},
		"an operation stops for no reason": {
			forge: func(h *History) {
				h.Operations[0].Pauses = []Pause{{after(40), "b", "b: Install: the installer ended with exit code 1"}}
			},
			want: []string{"reason"},
		},
		"an operation stops because of a fault of its machine": {
			forge: func(h *History) {
				h.Operations[0].Pauses = []Pause{{after(40), "b", "b: Install: the installer ended with exit code 1"}}
				h.Faults = []Fault{{What: "fail-install", Span: span("b", 20, 60), Explains: []string{"installer"}}}
			},
		},
		"an operation stops, and the fault is another machine's": {
			forge: func(h *History) {
				h.Operations[0].Pauses = []Pause{{after(40), "b", "b: Install: the installer ended with exit code 1"}}
				h.Faults = []Fault{{What: "fail-install", Span: span("another", 20, 60), Explains: []string{"installer"}}}
			},
			want: []string{"reason"},
		},
		"an operation stops, and says something else than the fault": {
			forge: func(h *History) {
				h.Operations[0].Pauses = []Pause{{after(40), "b", "b: Drain: a PodDisruptionBudget"}}
				h.Faults = []Fault{{What: "fail-install", Span: span("b", 20, 60), Explains: []string{"installer"}}}
			},
			want: []string{"reason"},
		},
		"an operation stops long after the fault": {
			forge: func(h *History) {
				h.Operations[0].Pauses = []Pause{{after(300), "b", "b: Install: the installer ended with exit code 1"}}
				h.Faults = []Fault{{What: "fail-install", Span: span("b", 20, 60), Explains: []string{"installer"}}}
			},
			want: []string{"reason"},
		},
		"a claim is left":              {forge: func(h *History) { h.Left.Claims = []string{"reboot-1"} }, want: []string{"left behind: claims"}},
		"a Node is left cordoned":      {forge: func(h *History) { h.Left.Cordons = []string{"cp-1"} }, want: []string{"left behind: cordons"}},
		"a plain snapshot is left":     {forge: func(h *History) { h.Left.Plain = []string{"plain"} }, want: []string{"left behind: plain snapshots"}},
		"a Job is left":                {forge: func(h *History) { h.Left.Jobs = []string{"gate"} }, want: []string{"left behind: Jobs"}},
		"a configuration waits":        {forge: func(h *History) { h.Left.Staged = []string{"w"} }, want: []string{"left behind: staged configurations"}},
		"the controller has ended":     {forge: func(h *History) { h.Left.After.Started = 2 }, want: []string{"left behind: the controller"}},
		"the controller lost its lead": {forge: func(h *History) { h.Left.After.Started, h.Left.LostLead = 2, true }},
		"the controller's goroutines":  {forge: func(h *History) { h.Left.After.Goroutines = 500 }, want: []string{"left behind: goroutines"}},
		"the controller's heap":        {forge: func(h *History) { h.Left.After.HeapMB = 500 }, want: []string{"left behind: heap"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			tc.forge(h)
			got := Judge(h).Violations
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("violations %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAnEtcdTellsWhenItWasMissed(t *testing.T) {
	t.Parallel()
	log := []byte(`{"level":"info","ts":"2026-01-01T12:00:00.100000Z","msg":"Running: "}
{"level":"info","ts":"2026-01-01T12:00:01.000000Z","msg":"ready to serve client requests"}
{"level":"info","ts":"2026-01-01T12:00:10.000000Z","msg":"received signal; shutting down","signal":"terminated"}
{"level":"info","ts":"2026-01-01T12:00:10.500000Z","msg":"closing etcd server"}
{"level":"info","ts":"2026-01-01T12:00:14.000000Z","msg":"Running: "}
{"level":"info","ts":"2026-01-01T12:00:16.000000Z","msg":"ready to serve client requests"}
no JSON
{"level":"info","ts":"2026-01-01T12:00:20.000000Z","msg":"compacted"}
{"level":"info","ts":"2026-01-01T12:00:30.000000Z","msg":"Running: "}
{"level":"info","ts":"2026-01-01T12:00:32.000000Z","msg":"ready to serve client requests"}
{"level":"info","ts":"2026-01-01T12:00:33.000000Z","msg":"apply"}
{"level":"info","ts":"2026-01-01T12:00:40.000000Z","msg":"Running: "}
{"level":"info","ts":"2026-01-01T12:00:41.000000Z","msg":"ready to serve client requests"}
{"level":"info","ts":"2026-01-01T12:00:50.000000Z","msg":"received signal; shutting down","signal":"terminated"}
`)
	got := Missed("a", log, []time.Time{after(28)})
	want := []Span{span("a", 10, 16), span("a", 28, 32), span("a", 33, 41), {Machine: "a", From: after(50)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
