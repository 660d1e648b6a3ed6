// SPDX-License-Identifier: Apache-2.0

package operations

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// unseen is how long something may be amiss until Ichor is held to have known: it asks every control plane, then tells one.
	unseen = 5 * time.Second
	// lingers is how long after its end a fault still explains that an operation stopped: a machine boots, and joins etcd again.
	lingers = 2 * time.Minute
	// growthGoroutines and growthHeap (MB) are how much larger a controller may be afterwards.
	growthGoroutines, growthHeap = 100, 64
)

// Verdict is what came of judging.
type Verdict struct {
	// Violations are what must not be.
	Violations []string
	// Told counts what machines were told that takes them down, Unknowable those of them when another control plane had gone down
	// less than a moment before.
	Told, Unknowable int
}

// Judge holds a history against what was promised.
func Judge(h *History) *Verdict {
	v := &Verdict{}
	v.together(h)
	v.quorum(h)
	v.once(h)
	v.ends(h)
	v.reasons(h)
	v.left(&h.Left)
	return v
}

func (v *Verdict) broken(format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
}

// told tells whether an act takes its machine down on Ichor's behalf.
func (a Act) told() bool {
	return a.What == ActToldReboot || a.What == ActToldShutdown || a.What == ActToldUpgrade
}

// down are the times at which a machine was without a system: from what it was told, or a fault that cut its power, to its boot.
func down(h *History) []Span {
	var spans []Span
	for _, act := range h.Acts {
		if act.told() && act.What != ActToldUpgrade {
			spans = append(spans, Span{Machine: act.Machine, From: act.At, To: bootAfter(h, act.Machine, act.At)})
		}
	}
	for _, fault := range h.Faults {
		if fault.What == FaultPower {
			spans = append(spans, Span{Machine: fault.Machine, From: fault.From, To: bootAfter(h, fault.Machine, fault.From)})
		}
	}
	return spans
}

// FaultPower is the fault that cuts a machine's power.
const FaultPower = "power"

func bootAfter(h *History, machine string, at time.Time) time.Time {
	var first time.Time
	for _, act := range h.Acts {
		if act.Machine == machine && act.What == ActBoot && act.At.After(at) && (first.IsZero() || act.At.Before(first)) {
			first = act.At
		}
	}
	return first
}

// together finds control planes that were told to go down while another one was.
func (v *Verdict) together(h *History) {
	spans := down(h)
	for _, act := range h.Acts {
		if !act.told() {
			continue
		}
		v.Told++
		if !slices.Contains(h.ControlPlanes, act.Machine) {
			continue
		}
		for _, span := range spans {
			if span.Machine == act.Machine || !slices.Contains(h.ControlPlanes, span.Machine) || !span.holds(act.At) {
				continue
			}
			if act.At.Sub(span.From) < unseen && !h.toldAt(span) {
				v.Unknowable++
				continue
			}
			v.broken("two control planes: %s got %s at %s, while %s was down since %s", act.Machine, act.What, clock(act.At), span.Machine, clock(span.From))
		}
	}
}

// toldAt tells whether a span begins with something that Ichor told: it always knows of that.
func (h *History) toldAt(span Span) bool {
	return slices.ContainsFunc(h.Acts, func(act Act) bool {
		return act.told() && act.Machine == span.Machine && act.At.Equal(span.From)
	})
}

// quorum finds control planes that were told to go down while the others had no quorum by their etcds' own logs.
func (v *Verdict) quorum(h *History) {
	need := len(h.ControlPlanes)/2 + 1
	for _, act := range h.Acts {
		if !act.told() || !slices.Contains(h.ControlPlanes, act.Machine) {
			continue
		}
		healthy, fresh := 0, 0
		for _, other := range h.ControlPlanes {
			if other == act.Machine {
				continue
			}
			at := slices.IndexFunc(h.Missed, func(span Span) bool { return span.Machine == other && span.holds(act.At) })
			switch {
			case at < 0:
				healthy++
			case act.At.Sub(h.Missed[at].From) < unseen:
				fresh++
			}
		}
		switch {
		case healthy >= need || len(h.ControlPlanes) == 1:
		case healthy+fresh >= need:
			v.Unknowable++
		default:
			v.broken("quorum: %s got %s at %s, and %d healthy voters were left, %d are needed", act.Machine, act.What, clock(act.At), healthy, need)
		}
	}
}

// once finds machines that were told more often than an operation has steps for it.
func (v *Verdict) once(h *History) {
	for _, operation := range h.Operations {
		for _, work := range operation.Work {
			installs, downs := 0, 0
			for _, act := range h.Acts {
				switch {
				case act.Machine != work.Machine || !work.holds(act.At):
				case act.What == ActInstaller:
					installs++
				case act.told():
					downs++
				}
			}
			if installs > work.Allowed || downs > work.Allowed {
				v.broken("once: operation %s had %s installed %d times and told to go down %d times, at most %d are due", operation.Name, work.Machine, installs, downs, work.Allowed)
			}
		}
	}
	for _, act := range h.Acts {
		if act.told() && !slices.ContainsFunc(h.Operations, func(operation Operation) bool {
			return slices.ContainsFunc(operation.Work, func(work Work) bool { return work.Machine == act.Machine && work.holds(act.At) })
		}) {
			v.broken("unasked: %s got %s at %s, and no operation worked on it", act.Machine, act.What, clock(act.At))
		}
	}
}

// ends finds operations that didn't end as one may.
func (v *Verdict) ends(h *History) {
	for _, operation := range h.Operations {
		switch {
		case operation.Phase == "Succeeded":
		case operation.Phase == "Cancelled" && operation.CancelAsked:
		default:
			v.broken("end: operation %s (%s) is %s: %s", operation.Name, operation.Kind, operation.Phase, operation.Message)
		}
	}
}

// reasons finds operations that stopped without a fault that explains it.
func (v *Verdict) reasons(h *History) {
	for _, operation := range h.Operations {
		for _, pause := range operation.Pauses {
			if !slices.ContainsFunc(h.Faults, func(fault Fault) bool { return fault.explains(operation.Name, pause) }) {
				v.broken("reason: operation %s stopped at %s, and no fault explains it: %s", operation.Name, clock(pause.At), pause.Message)
			}
		}
	}
}

// explains tells whether an operation stopped because of a fault: it was there lately, on the machine (or on the operation, or a
// fault of the whole cluster), and the message speaks of such a thing.
func (f Fault) explains(operation string, pause Pause) bool {
	if pause.At.Before(f.From) || !f.To.IsZero() && pause.At.After(f.To.Add(lingers)) {
		return false
	}
	if f.Machine != "" && f.Machine != pause.Machine && f.Machine != operation && !strings.Contains(pause.Message, f.Machine) {
		return false
	}
	return slices.ContainsFunc(f.Explains, func(word string) bool { return strings.Contains(pause.Message, word) })
}

// left finds what should be gone.
func (v *Verdict) left(l *Left) {
	for _, each := range []struct {
		what  string
		found []string
	}{{"claims", l.Claims}, {"cordons", l.Cordons}, {"plain snapshots", l.Plain}, {"Jobs", l.Jobs}, {"staged configurations", l.Staged}} {
		if len(each.found) > 0 {
			v.broken("left behind: %s: %s", each.what, strings.Join(each.found, ", "))
		}
	}
	if l.Before.Started != l.After.Started && !l.LostLead {
		v.broken("left behind: the controller that was to live through all of it was started again")
		return
	}
	if l.After.Goroutines > l.Before.Goroutines+growthGoroutines {
		v.broken("left behind: goroutines: %.0f, then %.0f", l.Before.Goroutines, l.After.Goroutines)
	}
	if l.After.HeapMB > l.Before.HeapMB+growthHeap {
		v.broken("left behind: heap: %.0f MB, then %.0f MB", l.Before.HeapMB, l.After.HeapMB)
	}
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }
