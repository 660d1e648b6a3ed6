// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// seedEnv repeats the random kills of an earlier run.
const seedEnv = "ICHOR_CRASH_SEED"

// longestGap is how long at most nothing is killed at random.
const longestGap = 4 * time.Second

// strikes are kills at random times.
type strikes struct {
	rng   *rand.Rand
	left  int
	timer *time.Timer
}

func newStrikes(t *testing.T) *strikes {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("random kills: %s=%d", seedEnv, seed)
	return &strikes{rng: rand.New(rand.NewPCG(seed, 0))}
}

// next fires when it is time for the next one; never if none is left.
func (s *strikes) next() <-chan time.Time {
	if s.left == 0 {
		return nil
	}
	if s.timer == nil {
		s.timer = time.NewTimer(time.Duration(s.rng.Int64N(int64(longestGap))))
	}
	return s.timer.C
}

func (s *strikes) struck() {
	s.timer = nil
	s.left--
}

// strikeController kills the controller at random times until the given number of strikes is used up.
func (c *crashes) strikeController(t *testing.T, count int) {
	t.Helper()
	c.strikes.left += count
	for c.strikes.left > 0 {
		select {
		case <-c.strikes.next():
			c.strikes.struck()
			if err := syscall.Kill(c.stack.Controllers()[0].PID(), syscall.SIGUSR1); err != nil {
				t.Fatal(fmt.Errorf("strike the controller: %w", err))
			}
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
