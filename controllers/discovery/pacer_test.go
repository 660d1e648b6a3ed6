// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// packets are when each packet of a simulated scan left that asked for a connection.
type packets []time.Duration

// busiest is the largest number of packets in any second.
func (p packets) busiest() int {
	slices.Sort(p)
	most, first := 0, 0
	for i := range p {
		for p[i]-p[first] >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// simulate scans for a while, as fast as the timeline lets it, a network in which answers tells which addresses answer,
// and within a moment.
func simulate(line *timeline, length time.Duration, answers func(i int) bool) (out packets, attempts int) {
	const moment = time.Millisecond
	type reply struct {
		at     time.Duration
		repeat int64
	}
	var replies []reply
	for now := time.Duration(0); now < length; {
		for len(replies) > 0 && replies[0].at <= now {
			line.giveBack(replies[0].repeat)
			replies = replies[1:]
		}
		repeat, wait := line.take(now)
		if wait > 0 {
			now += wait
			continue
		}
		out = append(out, now)
		if answers(attempts) {
			replies = append(replies, reply{now + moment, repeat})
		} else {
			out = append(out, now+synRepeat)
		}
		attempts++
		now += 10 * time.Microsecond
	}
	return out, attempts
}

func TestNoSecondHasMorePacketsThanTheRate(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for name, network := range map[string]struct {
		answers  func(i int) bool
		atATime  float64 // packets an address takes
		leastOf  float64 // part of the rate that is used at least
		unsteady bool
	}{
		"all refuse":         {answers: func(int) bool { return true }, atATime: 1, leastOf: 0.85},
		"all are silent":     {answers: func(int) bool { return false }, atATime: 2, leastOf: 0.85},
		"some of either":     {answers: func(int) bool { return random.IntN(2) == 0 }, unsteady: true},
		"one subnet of each": {answers: func(i int) bool { return i/1000%2 == 0 }, unsteady: true},
	} {
		for _, perSecond := range []int{2, 30, 75, 500, 4096} {
			t.Run(fmt.Sprintf("%s, %d a second", name, perSecond), func(t *testing.T) {
				const length = 20 * time.Second
				out, attempts := simulate(newTimeline(float64(perSecond)), length, network.answers)
				if busiest := out.busiest(); busiest > perSecond {
					t.Errorf("a second has %d packets", busiest)
				}
				if !network.unsteady && perSecond >= 30 {
					if used := float64(attempts) * network.atATime / length.Seconds(); used < network.leastOf*float64(perSecond) {
						t.Errorf("only %.1f packets a second", used)
					}
				}
			})
		}
	}
}

func TestThePacerLetsGoOfWhoGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(2)
		if _, err := p.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		failed := make(chan error, 2)
		for range 2 { // one waits for its time, one for its turn
			go func() {
				_, err := p.wait(ctx)
				failed <- err
			}()
		}
		for range 2 {
			if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestWhatAnswersMakesRoomAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		scan := func(answer bool) time.Duration {
			p, began := newPacer(100), time.Now()
			for range 300 {
				attempt, err := p.wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if answer {
					attempt.ended()
				}
			}
			return time.Since(began)
		}
		refused, silent := scan(true), scan(false)
		if refused > 4*time.Second || silent < 5*time.Second {
			t.Errorf("300 addresses at 100 a second: %s where all refuse, %s where all are silent", refused, silent)
		}
	})
}

func TestWithoutALimitNothingWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, began := newPacer(rate.Inf), time.Now()
		for range 100_000 {
			if _, err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited for %s", waited)
		}
	})
}
