// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Report is the result for people.
func (r *Result) Report() string {
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	say("seed %d, %d writers, %.0f s, %d faults", r.Seed, r.Writers, r.Seconds, len(r.Faults))
	for _, each := range r.Faults {
		say("  %s", each)
	}
	say("writes: %d acknowledged, %d refused, %d of unknown outcome", r.Acknowledged, r.Refused, r.Unknown)
	say("judged: %d revisions, %d acknowledged writes; at most %d control planes approved and %d slots held, the limit moved %d times, up to %d",
		r.Verdict.Revisions, r.Verdict.Acknowledged, r.Verdict.Approved, r.Verdict.Held, r.Verdict.LimitMoves, r.Verdict.Limit)
	say("every server ready %.1f s after the attack", r.Ready)
	for _, each := range r.Watchers {
		say("  informers %-28s %3d lists in all, caught up after %5.1f s, %d lists when idle", each.Name, each.Relists, each.CaughtUp, each.Idle)
	}
	for n := range min(len(r.Before), len(r.After)) {
		a, b := r.Before[n], r.After[n]
		say("  %s: started %d times, goroutines %d then %d, heap %.0f then %.0f MiB, resident %.0f then %.0f MiB",
			a.Name, b.Starts, a.Goroutines, b.Goroutines, a.HeapMiB, b.HeapMiB, a.ResidentMiB, b.ResidentMiB)
	}
	say("what clients were told:")
	for _, each := range r.Seen {
		say("  %6d  %-26s %s", each.Count, each.Where, each.What)
	}
	say("%d faults found", len(r.Verdict.Faults))
	for _, each := range r.Verdict.Faults {
		say("  %s", each)
	}
	return out.String()
}

// Write writes the result for programs.
func (r *Result) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("folder of the result: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
