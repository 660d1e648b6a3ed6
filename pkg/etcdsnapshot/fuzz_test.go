// SPDX-License-Identifier: Apache-2.0

package etcdsnapshot_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"maesh.dev/ichor/pkg/etcdsnapshot"
)

// FuzzCheck changes bytes of a database and puts a right checksum behind it: whoever writes a snapshot can do that, so
// the checksum alone must not be what keeps the reader from harm.
func FuzzCheck(f *testing.F) {
	whole := filled(f)
	f.Add([]byte{}, uint16(0))
	f.Add([]byte{0, 0, 0, 16, 255}, uint16(0))
	f.Add([]byte{0, 0, 16, 10, 1, 0, 0, 32, 8, 77}, uint16(1))
	f.Fuzz(func(t *testing.T, edits []byte, pages uint16) {
		content := bytes.Clone(whole)
		// Each edit is an offset of four bytes and the byte that is put there.
		for ; len(edits) >= 5; edits = edits[5:] {
			content[binary.BigEndian.Uint32(edits)%uint32(len(content))] = edits[4]
		}
		content = content[:len(content)-int(pages)%8*os.Getpagesize()]
		path := filepath.Join(t.TempDir(), "snapshot")
		if err := os.WriteFile(path, seal(content), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _ = etcdsnapshot.Check(ctx, path)
	})
}
