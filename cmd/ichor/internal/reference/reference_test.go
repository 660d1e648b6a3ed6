// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/cmd/ichor/app"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/reference"
)

const folder = "../../../../docs/cli"

func TestReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	pages := reference.Pages(app.NewCommand(&cli.Env{Name: "ichor"}))
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Errorf("%v; run `go generate ./cmd/ichor/...`", err)
			continue
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("docs/cli/%s isn't what the commands say; run `go generate ./cmd/ichor/...` (-commands +file):\n%s", name, diff)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, known := pages[filepath.Base(file)]; !known {
			t.Errorf("%s is of no command any more; remove it", file)
		}
	}
}
