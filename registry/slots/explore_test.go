// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// scene is who acts on what.
type scene struct {
	name   string
	setup  func(*world)
	actors []actor
	// faults is how many crashes, lost answers and refused steps there may be.
	faults int
	// once: an approval isn't tried again, because whoever asked for it is gone. It bounds how often two approvals can
	// drive each other out.
	once bool
}

// content is one state of all that is shared. It never changes; a write makes another.
type content struct {
	objects map[string]runtime.Object
	history map[string][]runtime.Object // kept where caches answer
	policy  policy
	clock   int
	id      uint64
}

// place is where an actor is: it has made these steps and was told this. An actor can be brought there again by itself,
// whatever the others did meanwhile.
type place struct {
	actor   int
	from    *place
	saw     *content
	by      move
	waiting step
	over    bool
	seen    uint64
	// live is a player that stands here.
	live *player
}

// effect is what comes of a step: where the actor is then, and what it wrote.
type effect struct {
	to      *place
	changes []change
	policy  policy
	clock   int
}

type change struct {
	key    string
	object runtime.Object // nil: removed
}

// question is all that an effect depends on.
type question struct {
	place   *place
	outcome outcome
	version int
	sees    uint64
}

// position is a state of a whole scene: what is shared, where everybody is, and what may still go wrong.
type position struct {
	content *content
	places  []*place
	faults  int
	// from and by say how it was first reached.
	from *position
	by   move
}

// explorer goes through the positions of a scene. What a step does depends on where its actor is and on the key that it
// is about, and is remembered, so that the code runs once for each and not in every order.
type explorer struct {
	w        *world
	scene    scene
	contents map[uint64]*content
	places   map[uint64]*place
	effects  map[question]*effect
	verdicts map[uint64]string
}

func newExplorer(w *world, s scene) (*explorer, *position) {
	x := &explorer{
		w: w, scene: s, contents: map[uint64]*content{}, places: map[uint64]*place{}, effects: map[question]*effect{},
		verdicts: map[uint64]string{},
	}
	w.load(&content{})
	w.once = s.once
	s.setup(w)
	begin := &position{content: x.intern(&content{objects: w.objects, history: w.history}), faults: s.faults}
	for n, a := range s.actors {
		p := w.enter(n, a)
		begin.places = append(begin.places, x.stand(&place{actor: n, waiting: p.waiting, over: p.over, seen: p.seen, live: p}))
	}
	return x, begin
}

// close ends the players that are left.
func (x *explorer) close() {
	for _, p := range x.places {
		if p.live != nil {
			x.w.end(p.live)
		}
	}
}

func (x *explorer) intern(c *content) *content {
	c.id = chain(uint64(c.clock), string(c.policy))
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		c.id = chain(c.id, key+describe(c.objects[key]))
	}
	if !x.w.cached {
		c.history = nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.history)) {
		for _, object := range c.history[key] {
			c.id = chain(c.id, key+describe(object))
		}
	}
	if same := x.contents[c.id]; same != nil {
		return same
	}
	x.contents[c.id] = c
	return c
}

// stand returns the place in which everything is as in p.
func (x *explorer) stand(p *place) *place {
	if p.over {
		p.seen = 0 // whatever it was told
	}
	id := chain(p.seen, strconv.Itoa(p.actor))
	if same := x.places[id]; same != nil {
		if p.live != nil && same.live == nil {
			same.live = p.live
		} else if p.live != nil {
			x.w.end(p.live)
		}
		return same
	}
	x.places[id] = p
	return p
}

// player brings a player to the place.
func (x *explorer) player(to *place) *player {
	if p := to.live; p != nil {
		to.live = nil
		return p
	}
	var way []*place
	for at := to; at.from != nil; at = at.from {
		way = append(way, at)
	}
	p := x.w.enter(to.actor, x.scene.actors[to.actor])
	for _, at := range slices.Backward(way) {
		x.w.load(at.saw)
		x.w.resume(p, at.by)
	}
	return p
}

// sees is what a step at the place can see of the content.
func (x *explorer) sees(at *place, c *content) uint64 {
	sum := chain(uint64(c.clock), string(c.policy))
	key := at.waiting.key
	switch {
	case strings.HasSuffix(key, "/"):
		for _, k := range slices.Sorted(maps.Keys(c.objects)) {
			if strings.HasPrefix(k, key) {
				sum = chain(sum, k+describe(c.objects[k]))
			}
		}
	case at.waiting.cached:
		for _, object := range c.history[key] {
			sum = chain(sum, describe(object))
		}
	default:
		sum = chain(sum, describe(c.objects[key]))
	}
	return sum
}

// step returns what the move does.
func (x *explorer) step(at *place, c *content, m move) *effect {
	asked := question{at, m.outcome, m.version, x.sees(at, c)}
	if known := x.effects[asked]; known != nil {
		return known
	}
	e := &effect{policy: c.policy, clock: c.clock}
	if m.outcome == crashed {
		e.to = x.stand(&place{actor: at.actor, over: true})
	} else {
		p := x.player(at)
		x.w.load(c)
		x.w.resume(p, m)
		e.changes, e.policy, e.clock = x.w.changes, x.w.policy, x.w.clock
		to := &place{actor: at.actor, from: at, saw: c, by: m, waiting: p.waiting, over: p.over, seen: p.seen}
		if !p.over {
			to.live = p
		}
		e.to = x.stand(to)
	}
	x.effects[asked] = e
	return e
}

// moves are all that can happen next.
func (x *explorer) moves(p *position) []move {
	var out []move
	for i, at := range p.places {
		if at.over {
			continue
		}
		versions := 1
		if at.waiting.cached {
			versions = len(p.content.history[at.waiting.key])
		}
		for version := range versions {
			out = append(out, move{i, taken, version})
		}
		if p.faults == 0 {
			continue
		}
		out = append(out, move{player: i, outcome: crashed}, move{player: i, outcome: refused})
		if at.waiting.write {
			out = append(out, move{player: i, outcome: lost})
		}
	}
	return out
}

// after is the position that a move leads to.
func (x *explorer) after(p *position, m move) (*position, *effect) {
	e := x.step(p.places[m.player], p.content, m)
	next := &position{content: p.content, places: slices.Clone(p.places), faults: p.faults, from: p, by: m}
	next.places[m.player] = e.to
	if m.outcome != taken {
		next.faults--
	}
	if len(e.changes) > 0 || e.policy != p.content.policy || e.clock != p.content.clock {
		c := &content{objects: maps.Clone(p.content.objects), history: maps.Clone(p.content.history), policy: e.policy, clock: e.clock}
		for _, change := range e.changes {
			if change.object == nil {
				delete(c.objects, change.key)
			} else {
				c.objects[change.key] = change.object
			}
			if x.w.cached {
				c.history[change.key] = append(slices.Clone(c.history[change.key]), change.object)
			}
		}
		next.content = x.intern(c)
	}
	return next, e
}

func (p *position) id() uint64 {
	sum := chain(p.content.id, strconv.Itoa(p.faults))
	for _, at := range p.places {
		sum = chain(sum, strconv.FormatUint(at.seen, 16)+strconv.FormatBool(at.over))
	}
	return sum
}

// broken says what is wrong with a position, if anything is.
func (x *explorer) broken(p *position, end bool) string {
	id := p.content.id
	if end {
		id = chain(id, "end")
	}
	verdict, known := x.verdicts[id]
	if !known {
		x.w.load(p.content)
		if verdict = x.w.check(); verdict == "" && end {
			verdict = x.w.settle()
		}
		x.verdicts[id] = verdict
	}
	return verdict
}

// explored is what an exploration covered.
type explored struct {
	positions, ends int
	// most is how many control planes were approved at a time.
	most int
}

// explore goes through all positions of the scene, the nearest first, so that the first finding is one of the shortest.
func (w *world) explore(s scene, most int) (explored, *finding, error) {
	x, begin := newExplorer(w, s)
	defer x.close()
	queue, seen, out := []*position{begin}, map[uint64]bool{begin.id(): true}, explored{}
	for at := 0; at < len(queue); at++ {
		if len(seen) > most {
			return out, nil, fmt.Errorf("scene %q has more than the %d positions that the test is made for", s.name, most)
		}
		p := queue[at]
		queue[at] = nil
		moves := x.moves(p)
		if broken := x.broken(p, len(moves) == 0); broken != "" {
			return out, x.finding(p, broken), nil
		}
		if len(moves) == 0 {
			out.ends++
		}
		out.most = max(out.most, p.content.approved())
		for _, m := range moves {
			next, _ := x.after(p, m)
			if id := next.id(); !seen[id] {
				seen[id] = true
				queue = append(queue, next)
			}
		}
	}
	out.positions = len(queue)
	return out, nil, nil
}

// wander takes one way through the scene, by the seed.
func (w *world) wander(s scene, seed uint64) *finding {
	x, p := newExplorer(w, s)
	defer x.close()
	random := rand.New(rand.NewPCG(seed, 0))
	for {
		moves := x.moves(p)
		if broken := x.broken(p, len(moves) == 0); broken != "" {
			return x.finding(p, broken)
		}
		if len(moves) == 0 {
			return nil
		}
		m := moves[random.IntN(len(moves))]
		if m.outcome != taken && random.IntN(4) > 0 {
			continue // faults are rarer than steps
		}
		p, _ = x.after(p, m)
	}
}

// finding is how an invariant was broken.
type finding struct {
	scene, broken string
	trace         []string
}

func (f *finding) String() string {
	return fmt.Sprintf("%s, after %d steps in scene %q:\n%s", f.broken, len(f.trace), f.scene, strings.Join(f.trace, "\n"))
}

func (x *explorer) finding(end *position, broken string) *finding {
	f := &finding{scene: x.scene.name, broken: broken}
	for p := end; p.from != nil; p = p.from {
		at := p.from.places[p.by.player]
		text := fmt.Sprintf("  %d %-28s %s%s", p.by.player+1, x.scene.actors[p.by.player].name, at.waiting.text, p.by.outcome)
		if at.waiting.cached {
			text += fmt.Sprintf(", which answers with %s", strings.TrimPrefix(describe(p.from.content.history[at.waiting.key][p.by.version]), ": "))
		}
		for _, change := range x.step(at, p.from.content, p.by).changes {
			text += "\n" + strings.Repeat(" ", 33) + "→ " + short(change.key) + describe(change.object)
		}
		f.trace = append(f.trace, text)
	}
	slices.Reverse(f.trace)
	return f
}
