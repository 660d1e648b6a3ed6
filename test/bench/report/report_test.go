// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteKeepsEveryRowAndSaysWhatWasMissed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bench")
	rows := []Row{
		Compare("time to the last address", 1.5, 3, "s", 1),
		Compare("memory", 250, 100, "MiB", 1),
		Compare("machines", 1000, 0, "", 0),
		{Name: "answers", Ours: 30, Peer: 20, Unit: "1/s", Ratio: 1.5, AtLeast: 1.5},
		{Name: "writes", Ours: 30, Peer: 20, Unit: "1/s", Ratio: 1.5, AtLeast: 2},
	}
	var out strings.Builder
	err := Write(&out, dir, "scan", rows)
	if err == nil || !strings.Contains(err.Error(), "memory: 2.50") || !strings.Contains(err.Error(), "writes: 1.50 times the peer, aimed at 2.00 at least") ||
		strings.Contains(err.Error(), "time to") || strings.Contains(err.Error(), "answers") {
		t.Errorf("want an error about memory and writes alone, got %v", err)
	}
	for _, line := range []string{"time to the last address  1.5   3     s     0.5    <= 1", "machines                  1000  -           -      -"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("want the line %q in\n%s", line, out.String())
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "scan.json"))
	if err != nil {
		t.Fatal(err)
	}
	var kept []Row
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, kept); diff != "" {
		t.Errorf("the file differs (-want +got):\n%s", diff)
	}
}
