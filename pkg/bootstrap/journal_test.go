// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatARunThatWasCutOffWasWritingIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, unfinished+"1"), []byte("half a bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeDurably(filepath.Join(dir, bundleFile), []byte("a bundle")); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(dir, "prod")
	if err != nil {
		t.Fatal(err)
	}
	j.close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff([]string{bundleFile, lockFile}, names); diff != "" {
		t.Error(diff)
	}
}
