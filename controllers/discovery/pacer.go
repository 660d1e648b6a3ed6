// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// synRepeat is after what time kernels send the SYN of a connection again that nothing answers (RFC 6298, 2.1). The
	// prober gives up before they do so a second time.
	synRepeat = time.Second
	// maxSlots is the number of slots that a second has at most: as fine as timers are.
	maxSlots = 50
	// spare is the part of the rate that is left for packets that leave later than they were meant to, and then meet those
	// of the next slot: a busy machine, and a kernel that fires its timers in bunches (32ms, if it ticks 250 times a second).
	spare = 0.06
)

// pacer holds the packets that ask for a connection to a number a second, the kernel's repeats included: where nothing
// answers there are twice as many of them as addresses.
type pacer struct {
	// turn is held by who waits for its time; the others wait for their turn.
	turn  chan struct{}
	since time.Time

	mu   sync.Mutex
	line *timeline // nil without a limit
}

func newPacer(limit rate.Limit) *pacer {
	p := &pacer{turn: make(chan struct{}, 1), since: time.Now()}
	if limit != rate.Inf {
		p.line = newTimeline(float64(limit))
	}
	return p
}

// attempt is leave to ask for one connection.
type attempt struct {
	pacer  *pacer
	began  time.Time
	repeat int64 // slot of the packet that the kernel repeats
}

// wait waits until another connection may be asked for.
func (p *pacer) wait(ctx context.Context) (attempt, error) {
	if p.line == nil {
		return attempt{}, ctx.Err()
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return attempt{}, ctx.Err()
	}
	defer func() { <-p.turn }()
	for {
		now := time.Now()
		repeat, left := p.take(now.Sub(p.since))
		if left == 0 {
			return attempt{pacer: p, began: now, repeat: repeat}, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return attempt{}, ctx.Err()
		}
	}
}

func (p *pacer) take(now time.Duration) (int64, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line.take(now)
}

// ended gives back what was kept for a repeat that didn't become necessary.
func (a attempt) ended() {
	if a.pacer == nil || time.Since(a.began) >= synRepeat {
		return
	}
	a.pacer.mu.Lock()
	defer a.pacer.mu.Unlock()
	a.pacer.line.giveBack(a.repeat)
}

// timeline counts packets by slots of time: those that were sent, and ahead of now those that will be repeated. As no slot
// ever holds more than its quota, no second holds more than the rate, wherever it begins (of rates from 2 up).
type timeline struct {
	slot  time.Duration // length of a slot
	quota int           // packets a slot has room for
	ahead int64         // slots between a packet and its repeat
	now   int64         // the current slot
	used  []int         // by slot, a ring
}

func newTimeline(perSecond float64) *timeline {
	aim := max(perSecond*(1-spare), 1)
	quota := math.Ceil(aim / maxSlots)
	// A second that begins within a slot meets a part of one more.
	slots := max(math.Floor(aim/quota)-1, 1)
	t := &timeline{slot: time.Duration(float64(time.Second) / slots), quota: int(quota)}
	t.ahead = int64(synRepeat / t.slot)
	t.used = make([]int, t.ahead+1)
	return t
}

func (t *timeline) at(slot int64) *int { return &t.used[slot%int64(len(t.used))] }

// take takes room for a packet now and for its repeat, or says how long to wait before trying again.
func (t *timeline) take(now time.Duration) (repeat int64, wait time.Duration) {
	t.advance(int64(now / t.slot))
	if *t.at(t.now) < t.quota && *t.at(t.now + t.ahead) < t.quota {
		*t.at(t.now)++
		*t.at(t.now + t.ahead)++
		return t.now + t.ahead, 0
	}
	next := t.now + 1
	for next < t.now+t.ahead && *t.at(next) >= t.quota {
		next++
	}
	return 0, time.Duration(next)*t.slot - now
}

// giveBack gives the room of a repeat back that won't be needed.
func (t *timeline) giveBack(repeat int64) {
	if repeat > t.now && *t.at(repeat) > 0 {
		*t.at(repeat)--
	}
}

// advance empties the slots that come into view.
func (t *timeline) advance(to int64) {
	for steps := 0; t.now < to && steps < len(t.used); steps++ {
		// Those far behind need no emptying one by one.
		t.now = max(t.now+1, to-int64(len(t.used))+1)
		*t.at(t.now + t.ahead) = 0
	}
}
