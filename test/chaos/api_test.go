// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"maesh.dev/ichor/test/chaos"
)

var (
	attackFor  = flag.Duration("chaos.for", 0, "how long to attack the API; 0 is 20 s, and three minutes where ICHOR_CHAOS is set")
	attackSeed = flag.Uint64("chaos.seed", 0, "what decides about faults and writes; 0 chooses one")
	resultFile = flag.String("chaos.result", "", "a file for the result, as JSON")
)

const (
	// growthGoroutines and growthHeap are how many goroutines and MiB of heap a server may have more after the attack than before: objects come to
	// stay, and clients have more connections than at first.
	growthGoroutines = 150
	growthHeap       = 48
	// listsPerFault bounds how often the informers of one watcher begin anew: each of three kinds, once or twice for a
	// fault that cuts them off.
	listsPerFault = 2 * kinds
	kinds         = 3
)

// TestTheAPIUnderAttack kills, pauses and cuts off etcd's members, the kube-apiserver and the ichor-apiservers while
// twenty writers write. Afterwards every acknowledged write is there, no invariant was broken in any revision, informers
// hold what etcd holds, and no server has grown.
func TestTheAPIUnderAttack(t *testing.T) {
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin")) // a test runs in its own folder
	if err != nil {
		t.Fatal(err)
	}
	options := chaos.Options{
		Dir: t.TempDir(), Bin: bin, Seed: *attackSeed, For: 20 * time.Second, Pause: time.Second, Longest: 3 * time.Second,
		Calm: 3 * time.Second, Idle: 3 * time.Second, Progress: t.Logf,
	}
	if os.Getenv("ICHOR_CHAOS") != "" {
		options.For, options.Pause, options.Longest, options.Calm, options.Idle = 3*time.Minute, 3*time.Second, time.Minute, 10*time.Second, 60*time.Second
	}
	if *attackFor > 0 {
		options.For = *attackFor
	}
	if options.Seed == 0 {
		options.Seed = rand.Uint64()
	}
	result, err := chaos.Run(t.Context(), options)
	if result != nil {
		t.Log(result.Report())
		if *resultFile != "" {
			if err := result.Write(*resultFile); err != nil {
				t.Error(err)
			}
		}
	}
	if err != nil {
		keepLogs(t, options.Dir)
		t.Fatal(err)
	}
	check(t, result)
	if t.Failed() {
		keepLogs(t, options.Dir)
	}
}

// check holds a result against what was promised.
func check(t *testing.T, r *chaos.Result) {
	t.Helper()
	for _, fault := range r.Verdict.Faults {
		t.Error(fault)
	}
	if r.Verdict.Acknowledged == 0 || r.Unknown == 0 || r.Verdict.Approved == 0 || r.Verdict.LimitMoves < 2 {
		t.Errorf("the attack shows too little: %d acknowledged and %d unknown writes, at most %d approved, %d limits", r.Verdict.Acknowledged, r.Unknown, r.Verdict.Approved, r.Verdict.LimitMoves)
	}
	for _, w := range r.Watchers {
		if most := int64(3 + listsPerFault*len(r.Faults)); w.Relists > most {
			t.Errorf("informers %s began anew %d times in %d faults, at most %d are expected", w.Name, w.Relists, len(r.Faults), most)
		}
		// A connection that fell silent is noticed up to 45 s later.
		if w.Idle > kinds {
			t.Errorf("informers %s begin anew though nothing happens: %d times", w.Name, w.Idle)
		}
	}
	for n, before := range r.Before {
		after := r.After[n]
		if after.Goroutines > before.Goroutines+growthGoroutines || after.HeapMiB > before.HeapMiB+growthHeap {
			t.Errorf("%s grows: %+v, then %+v", before.Name, before, after)
		}
	}
}

// keepLogs copies the logs of a failed run to where they stay.
func keepLogs(t *testing.T, dir string) {
	t.Helper()
	kept, err := os.MkdirTemp("", "ichor-chaos-")
	if err != nil {
		t.Error(err)
		return
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := os.WriteFile(filepath.Join(kept, filepath.Base(log)), text, 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Logf("the logs are kept in %s", kept)
}

// TestMain keeps client-go's complaints about broken connections out of the result.
func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}
