// SPDX-License-Identifier: Apache-2.0

package auditlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"maesh.dev/ichor/test/localstack/auditlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write appends to a file and makes its folder.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(file, text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func keepAll([]byte) bool { return true }

func expect(t *testing.T, path, want string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := os.ReadFile(path)
		if err == nil && string(got) == want {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("gathered log is %q, want %q", got, want)
		case <-tick.C:
		}
	}
}

func TestLinesOfAllControlPlanesAreGathered(t *testing.T) {
	dir := t.TempDir()
	first, second, target := filepath.Join(dir, "a", "audit.log"), filepath.Join(dir, "b", "audit.log"), filepath.Join(dir, "audit.log")
	write(t, first, "a1\na2\n")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- auditlog.Follow(ctx, filepath.Join(dir, "*", "audit.log"), target, keepAll, slog.New(slog.DiscardHandler))
	}()
	expect(t, target, "a1\na2\n")

	// A control plane that joins later.
	write(t, second, "b1\n")
	expect(t, target, "a1\na2\nb1\n")

	// A line that is still being written.
	write(t, first, "a")
	write(t, second, "b2\n")
	expect(t, target, "a1\na2\nb1\nb2\n")
	write(t, first, "3\n")
	expect(t, target, "a1\na2\nb1\nb2\na3\n")

	// Rotation, with a last line in the old file.
	write(t, first, "a4\n")
	if err := os.Rename(first, first+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, first, "a5\n")
	expect(t, target, "a1\na2\nb1\nb2\na3\na4\na5\n")

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestASecondStartWritesTheFileAnew(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "a", "audit.log"), filepath.Join(dir, "audit.log")
	write(t, source, "a1\n")
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := auditlog.Follow(ctx, filepath.Join(dir, "*", "audit.log"), target, keepAll, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, target, "a1\n")
}
