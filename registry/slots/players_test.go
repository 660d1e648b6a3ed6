// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
)

// outcome is what becomes of a step.
type outcome int

const (
	// taken: the step is done and answered.
	taken outcome = iota
	// crashed: the process ends before the step. (Ending after it is ending before the next.)
	crashed
	// lost: the write is done and its answer is lost, so the caller sees a timeout.
	lost
	// refused: the step isn't done, and the caller sees an error.
	refused
)

func (o outcome) String() string {
	return [...]string{"", ": CRASHES before", ": done, but the ANSWER IS LOST", ": FAILS, not done"}[o]
}

var (
	errCrashed = errors.New("the process has ended")
	errTimeout = errors.New("storage: request timed out")
)

// step is one access to the storage that somebody is about to make. Between two steps nothing is shared, so the orders
// of steps are all that can differ. A write that reaches the storage late, after its caller has gone, is one of them: it
// is a caller that is slow, and then crashes.
type step struct {
	text string
	// key is what the step is about, and all of the storage that it sees; with a slash at its end, all keys below.
	key   string
	write bool
	// cached: the answer may be of any version of the key that there ever was.
	cached bool
}

// move is a step that somebody makes.
type move struct {
	player  int
	outcome outcome
	// version of the key, counted from the oldest, that a cache answers with.
	version int
}

// player runs an actor as a coroutine that stops before each step.
type player struct {
	name    string
	next    func() (step, bool)
	stop    func()
	yield   func(step) bool
	waiting step
	over    bool
	gone    bool
	granted move
	steps   int
	tokens  int
	// seen stands for all that the actor was told so far; as actors are deterministic, for where it is and what it knows.
	seen uint64
}

var hashSeed = maphash.MakeSeed()

func chain(before uint64, text string) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	maphash.WriteComparable(&h, before)
	_, _ = h.WriteString(text)
	return h.Sum64()
}

// enter makes a player of the nth actor and lets it run up to its first step.
func (w *world) enter(n int, a actor) *player {
	p := &player{name: fmt.Sprintf("%d %s", n+1, a.name), seen: chain(0, "enters")}
	p.next, p.stop = iter.Pull(func(yield func(step) bool) {
		p.yield = yield
		a.do(w)
	})
	w.resume(p, move{})
	return p
}

// resume lets a player make the step that it waits for and run up to the next one, or to its end.
func (w *world) resume(p *player, m move) {
	w.current, p.granted = p, m
	next, ok := p.next()
	w.current, p.waiting, p.over = nil, next, !ok
}

// end takes a player out: all that it still asks for fails.
func (w *world) end(p *player) {
	w.current, p.gone, p.over = p, true, true
	p.stop()
	w.current = nil
}

// turn is called before each access to the storage. It returns when it is the caller's turn, with what becomes of it.
func (w *world) turn(s step) (move, error) {
	p := w.current
	if p == nil {
		return move{}, nil // while a scene is set and judged, nobody else is there
	}
	p.steps++
	if p.gone || !p.yield(s) {
		p.gone = true
		return move{}, errCrashed
	}
	w.told(s.text)
	if p.granted.outcome == refused {
		w.told("refused")
		return move{}, errTimeout
	}
	return p.granted, nil
}

// told notes what the one whose turn it is was told.
func (w *world) told(text string) {
	if w.current != nil {
		w.current.seen = chain(w.current.seen, text)
	}
}
