// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event is one change of one key in etcd.
type Event struct {
	// Key is resource/name.
	Key      string
	Revision int64
	// Value is the object as it is stored, nil if it was deleted.
	Value []byte
}

// Counter is the key of the object that several writers count up, each by reading and writing it: no step may be lost.
const Counter = "talosconfigpatches/counter"

// Elsewhere begins keys of what isn't stored as it was written: somebody else looks at the end of it.
const Elsewhere = "elsewhere/"

// maxFaults bounds what is told of a run where much is wrong.
const maxFaults = 50

var marker = regexp.MustCompile(`w[0-9]{2}-[0-9]{6}`)

// Judge goes through the revisions in order, and then holds the ledger against what it has seen.
type Judge struct {
	ledger   *Ledger
	attempts map[string]*Attempt // by marker
	seen     map[place][]string  // the markers in what was stored
	objects  map[string]*object  // by key, as it is now
	ended    map[string]string   // UIDs of objects that left or are on their way → how
	gate     gate
	machines machines
	counter  int32
	verdict  Verdict
}

type place struct {
	key      string
	revision int64
}

// object is what every kind has.
type object struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Priority *int32 `json:"priority"`
	} `json:"spec"`
	markers []string
}

// Verdict is what was found.
type Verdict struct {
	// Revisions is how many were judged, Acknowledged how many acknowledged writes were looked up.
	Revisions    int `json:"revisions"`
	Acknowledged int `json:"acknowledged"`
	// Approved and Held are the most control planes and slots in one revision, Limit the highest limit.
	Approved int `json:"mostControlPlanes"`
	Held     int `json:"mostSlots"`
	Limit    int `json:"highestLimit"`
	// LimitMoves is how often the limit changed.
	LimitMoves int `json:"limitMoves"`
	// Faults are empty if all is well.
	Faults []string `json:"faults"`
}

// New is a judge before the first revision. All writers have ended.
func New(ledger *Ledger) *Judge {
	j := &Judge{
		ledger: ledger, attempts: map[string]*Attempt{}, seen: map[place][]string{}, objects: map[string]*object{}, ended: map[string]string{},
		gate: newGate(), machines: newMachines(),
	}
	for _, a := range ledger.attempts {
		if a.Marker != "" {
			j.attempts[a.Marker] = a
		}
	}
	return j
}

func (j *Judge) fault(format string, args ...any) {
	if len(j.verdict.Faults) < maxFaults {
		j.verdict.Faults = append(j.verdict.Faults, fmt.Sprintf(format, args...))
	}
}

// See judges one change.
func (j *Judge) See(e Event) {
	j.verdict.Revisions++
	before := j.objects[e.Key]
	if e.Value == nil {
		if before != nil {
			j.ended[string(before.UID)] = "gone"
		}
		delete(j.objects, e.Key)
	} else {
		now := &object{}
		if err := json.Unmarshal(e.Value, now); err != nil {
			j.fault("revision %d: %s isn't JSON: %v", e.Revision, e.Key, err)
			return
		}
		now.markers = marker.FindAllString(string(e.Value), -1)
		j.seen[place{e.Key, e.Revision}] = now.markers
		j.objects[e.Key] = now
		j.succession(e, before, now)
		j.refused(e, now)
		j.count(e, now)
	}
	for _, fault := range append(j.gate.see(e), j.machines.see(e)...) {
		j.fault("revision %d: %s", e.Revision, fault)
	}
	j.verdict.Approved, j.verdict.Held = max(j.verdict.Approved, len(j.gate.approved)), max(j.verdict.Held, len(j.gate.held))
	j.verdict.Limit, j.verdict.LimitMoves = max(j.verdict.Limit, j.gate.limit), j.gate.moves
}

// succession holds an object against the one before it under the same key.
func (j *Judge) succession(e Event, before, now *object) {
	if before != nil && before.UID != now.UID {
		j.fault("revision %d: %s with UID %s is written over by one with UID %s", e.Revision, e.Key, before.UID, now.UID)
	}
	if how, ended := j.ended[string(now.UID)]; ended && (how == "gone" || now.DeletionTimestamp == nil) {
		j.fault("revision %d: %s with UID %s was deleted and lives again", e.Revision, e.Key, now.UID)
	}
	if now.DeletionTimestamp != nil && j.ended[string(now.UID)] == "" {
		j.ended[string(now.UID)] = "on its way"
	}
}

// refused looks for what was refused and is stored all the same.
func (j *Judge) refused(e Event, now *object) {
	for _, m := range now.markers {
		if a := j.attempts[m]; a != nil && a.Key == e.Key && a.Outcome == Refused {
			j.fault("revision %d: %s holds %s, which was refused", e.Revision, e.Key, m)
		}
	}
}

// count looks for a step that was lost or made twice.
func (j *Judge) count(e Event, now *object) {
	if e.Key != Counter || now.Spec.Priority == nil {
		return
	}
	if got := *now.Spec.Priority; got != j.counter && got != j.counter+1 {
		j.fault("revision %d: the counter goes from %d to %d", e.Revision, j.counter, got)
	}
	j.counter = *now.Spec.Priority
}

// Close holds the ledger against what was seen.
func (j *Judge) Close() Verdict {
	j.verdict.Faults = append(j.verdict.Faults, j.ledger.faults...)
	for _, a := range j.ledger.attempts {
		if a.Outcome == Acknowledged {
			j.verdict.Acknowledged++
			j.acknowledged(a)
		}
	}
	for key := range j.ledger.orders {
		if !strings.HasPrefix(key, Elsewhere) {
			j.last(key)
		}
	}
	j.counted()
	return j.verdict
}

func (j *Judge) acknowledged(a *Attempt) {
	switch {
	case a.UID != "":
		if how := j.ended[a.UID]; how == "" || a.Gone && how != "gone" {
			j.fault("%s with UID %s: its deletion was acknowledged, and it is %q", a.Key, a.UID, how)
		}
	case a.Revision > 0:
		if markers, stored := j.seen[place{a.Key, a.Revision}]; !stored || !slices.Contains(markers, a.Marker) && a.Marker != "" {
			j.fault("%s: write %s was acknowledged with resourceVersion %d; etcd has %q there", a.Key, a.Marker, a.Revision, markers)
		}
	}
}

// last looks at what is stored in the end under a key that one writer owns: its last acknowledged write, or one whose
// outcome nobody knows.
func (j *Judge) last(key string) {
	now, writer := j.objects[key], ""
	var newest *Attempt
	open := map[string]bool{}
	for _, a := range j.ledger.attempts {
		if a.Key != key || a.Marker == "" || a.UID != "" {
			continue
		}
		from, _, _ := strings.Cut(a.Marker, "-")
		if writer != "" && from != writer {
			return // several write it
		}
		writer = from
		switch a.Outcome {
		case Acknowledged:
			newest = a
		case Unknown, Pending:
			open[a.Marker] = true
		}
	}
	if newest == nil {
		return
	}
	if now == nil {
		if !j.deletionTried(key) {
			j.fault("%s: %s was acknowledged, nobody deletes it, and it isn't there in the end", key, newest.Marker)
		}
		return
	}
	if !slices.Contains(now.markers, newest.Marker) && !slices.ContainsFunc(now.markers, func(m string) bool { return open[m] }) {
		j.fault("%s: %s was acknowledged last, and the end is %q", key, newest.Marker, now.markers)
	}
}

func (j *Judge) deletionTried(key string) bool {
	return slices.ContainsFunc(j.ledger.attempts, func(a *Attempt) bool { return a.Key == key && a.UID != "" })
}

// counted holds the counter against how many steps were acknowledged.
func (j *Judge) counted() {
	least, most := int32(0), int32(0)
	for _, a := range j.ledger.attempts {
		if a.Key != Counter || a.order == 1 { // the first one makes it
			continue
		}
		switch a.Outcome {
		case Acknowledged:
			least++
			most++
		case Unknown, Pending:
			most++
		}
	}
	if j.counter < least || j.counter > most {
		j.fault("the counter is at %d, %d steps were acknowledged and %d tried", j.counter, least, most)
	}
}
