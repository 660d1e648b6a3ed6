// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"maesh.dev/ichor/registry/slots"
)

// chaos asks for the long form: one more fault in each scene, each rule in every scene, and many more random orders.
var chaos = os.Getenv("ICHOR_CHAOS") == "1"

// mostPositions bounds an exploration: a scene that has more is too large to be one.
const mostPositions = 1_000_000

// TestNoOrderOfStepsBreaksTheGate drives the registry's real code through every order in which the steps of a scene's
// actors can follow each other, and holds every stored state to the invariants: no more approved control planes than the
// limit, each with a slot, a hostname of its own and the UID of a living cluster, and no slot without one in the end.
func TestNoOrderOfStepsBreaksTheGate(t *testing.T) {
	t.Parallel()
	for _, s := range scenes {
		if chaos {
			s.faults++
		}
		for _, grace := range []time.Duration{0, slots.DefaultGrace} {
			t.Run(s.name+", grace "+grace.String(), func(t *testing.T) {
				t.Parallel()
				s := s
				if grace == 0 {
					s.once = true // two approvals could drive each other's slots out again and again
				}
				got, found, err := newWorld(t, "", grace).explore(s, mostPositions)
				switch {
				case err != nil:
					t.Fatal(err)
				case found != nil:
					t.Fatal(found)
				case got.most == 0:
					t.Error("in no order anything is approved: the scene shows nothing")
				}
				t.Logf("%d positions, %d of them ends; at most %d approved at a time", got.positions, got.ends, got.most)
			})
		}
	}
}

// TestEveryRuleIsNeeded leaves out one rule of the protocol at a time and looks for what goes wrong.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	where := map[string]string{
		"count":        "the count falls and rises",
		"hostname":     "two machines under one name",
		"slot per UID": "a machine is made again while it is approved",
		"new token":    "one machine approved twice, and a reaper",
		"rename":       "one machine under two names",
		"version":      "an approval and two reapers",
		"UID":          "a machine is made again while it is approved",
		"final object": "admission makes control planes of workers",
		"cluster UID":  "the cluster is deleted and made again",
		"touch":        "an approval and two reapers",
		"token":        "one machine approved twice, and a reaper",
		"quorum":       "an approval and two reapers",
		"no release":   "one machine approved twice, and a reaper",
	}
	for _, rule := range append(slots.Rules(), "count", "no release") {
		t.Run("finds a counter-example without "+rule, func(t *testing.T) {
			t.Parallel()
			var shortest *finding
			for _, s := range scenes {
				if s.name != where[rule] && !chaos {
					continue
				}
				_, found, err := newWorld(t, rule, slots.DefaultGrace).explore(s, mostPositions)
				if err != nil {
					t.Log(err) // too large without the rule; others show it
				}
				if found != nil && (shortest == nil || len(found.trace) < len(shortest.trace)) {
					shortest = found
				}
			}
			if shortest == nil {
				t.Fatalf("nothing goes wrong without the rule %q: it isn't needed, or the scenes don't show it", rule)
			}
			t.Logf("without %q: %s", rule, shortest)
		})
	}
}

// TestAMovedMachineStaysInItsCluster is the rule "final object" once more, for the other thing that admission could
// change.
func TestAMovedMachineStaysInItsCluster(t *testing.T) {
	t.Parallel()
	at := slices.IndexFunc(scenes, func(s scene) bool { return s.name == "admission moves machines to another cluster" })
	_, found, err := newWorld(t, "final object", slots.DefaultGrace).explore(scenes[at], mostPositions)
	if err != nil || found == nil {
		t.Fatalf("nothing goes wrong without the rule \"final object\" (%v)", err)
	}
	t.Log(found)
}

// TestRandomOrdersKeepTheLimit wanders through a scene that is too large to be explored.
func TestRandomOrdersKeepTheLimit(t *testing.T) {
	t.Parallel()
	seed, rounds := rand.Uint64(), 100
	if chaos {
		rounds = 20_000
	}
	if text := os.Getenv("ICHOR_SEED"); text != "" {
		parsed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("ICHOR_SEED: %v", err)
		}
		seed, rounds = parsed, 1
	}
	t.Logf("seeds from %d", seed)
	for _, grace := range []time.Duration{0, slots.DefaultGrace} {
		w := newWorld(t, "", grace)
		for n := range rounds {
			if found := w.wander(crowd, seed+uint64(n)); found != nil {
				t.Fatalf("ICHOR_SEED=%d, grace %s: %s", seed+uint64(n), grace, found)
			}
		}
	}
}
