// SPDX-License-Identifier: Apache-2.0

// Package judge holds what clients were told against what etcd has stored: a ledger of every write and its outcome, and
// a judge who goes through every revision. It is pure: it asks nobody and waits for nothing.
package judge

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what a client knows of a write.
type Outcome int

const (
	// Pending writes have no answer yet.
	Pending Outcome = iota
	// Acknowledged writes must be there.
	Acknowledged
	// Refused writes must not.
	Refused
	// Unknown writes may be there or not: the answer was lost, or says that nobody knows.
	Unknown
)

// Attempt is one write of one object. Its marker is in what is written, and in no other write.
type Attempt struct {
	// Key is resource/name.
	Key string
	// Marker is empty for writes that have no place for one.
	Marker  string
	Outcome Outcome
	// Revision is the resourceVersion that was answered, 0 if none was.
	Revision int64
	// UID is the object's, for a deletion. Gone: it must have left, and not only be on its way.
	UID  string
	Gone bool
	// order is the place among the attempts at the key.
	order int
}

// Ledger has all attempts. Several writers use it at a time.
type Ledger struct {
	mu       sync.Mutex
	attempts []*Attempt
	orders   map[string]int
	faults   []string
}

// NewLedger is empty.
func NewLedger() *Ledger { return &Ledger{orders: map[string]int{}} }

// Begin notes a write that is about to be sent. With a writer's number it gets a marker.
func (l *Ledger) Begin(key string, writer int) *Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[key]++
	a := &Attempt{Key: key, order: l.orders[key], Marker: fmt.Sprintf("w%02d-%06d", writer, len(l.attempts))}
	l.attempts = append(l.attempts, a)
	return a
}

// BeginDeletion notes that an object is about to be deleted; gone if it has nothing that holds it back.
func (l *Ledger) BeginDeletion(key string, uid string, gone bool) *Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &Attempt{Key: key, UID: uid, Gone: gone}
	l.attempts = append(l.attempts, a)
	return a
}

// BeginUnmarked notes a write that has no place for a marker.
func (l *Ledger) BeginUnmarked(key string) *Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &Attempt{Key: key}
	l.attempts = append(l.attempts, a)
	return a
}

// Fault notes something that is wrong for sure.
func (l *Ledger) Fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// Settle notes what came of a write. The object is what was answered, nil if only a success was.
func (l *Ledger) Settle(a *Attempt, answered metav1.Object, err error) Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.Outcome = OutcomeOf(err)
	if a.Outcome != Acknowledged || answered == nil {
		return a.Outcome
	}
	revision, err := strconv.ParseInt(answered.GetResourceVersion(), 10, 64)
	if err != nil {
		l.faults = append(l.faults, fmt.Sprintf("%s: the answer has the resourceVersion %q", a.Key, answered.GetResourceVersion()))
	}
	a.Revision = revision
	return a.Outcome
}

// OutcomeOf is what an answer says of a write. A server that says 4xx has refused; what else goes wrong leaves it open.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Acknowledged
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if code := status.Status().Code; code >= http.StatusBadRequest && code < http.StatusInternalServerError {
			return Refused
		}
	}
	return Unknown
}

// Count is how many attempts had each outcome.
func (l *Ledger) Count() (acknowledged, refused, unknown int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.attempts {
		switch a.Outcome {
		case Acknowledged:
			acknowledged++
		case Refused:
			refused++
		default:
			unknown++
		}
	}
	return acknowledged, refused, unknown
}

// Attempts are those at a key.
func (l *Ledger) Attempts(key string) []*Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*Attempt
	for _, a := range l.attempts {
		if a.Key == key {
			out = append(out, a)
		}
	}
	return out
}
