// SPDX-License-Identifier: Apache-2.0

package etcdsnapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"maesh.dev/ichor/pkg/etcdsnapshot"
)

// change is a revision of a key as etcd stores it.
func change(t testing.TB, bucket *bolt.Bucket, revision uint64, key string, deleted bool) {
	t.Helper()
	name := binary.BigEndian.AppendUint64(nil, revision)
	name = binary.BigEndian.AppendUint64(append(name, '_'), 0)
	if deleted {
		name = append(name, 't')
	}
	value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key), Value: bytes.Repeat([]byte("v"), 900)})
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Put(name, value); err != nil {
		t.Fatal(err)
	}
}

// database makes what etcd has in its file, with the checksum that it sends behind.
func database(t testing.TB, fill func(*bolt.Tx)) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error { fill(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func seal(content []byte) []byte {
	sum := sha256.Sum256(content)
	return append(bytes.Clone(content), sum[:]...)
}

func bucket(t testing.TB, tx *bolt.Tx, name string) *bolt.Bucket {
	t.Helper()
	made, err := tx.CreateBucket([]byte(name))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func filled(t testing.TB) []byte {
	return database(t, func(tx *bolt.Tx) {
		keys := bucket(t, tx, "key")
		for revision := range uint64(200) {
			change(t, keys, revision+2, fmt.Sprintf("/registry/pods/%d", revision%50), false)
		}
		change(t, keys, 300, "/registry/pods/7", true)
		if err := bucket(t, tx, "meta").Put([]byte("storageVersion"), []byte("3.6.0")); err != nil {
			t.Fatal(err)
		}
		members := bucket(t, tx, "members")
		for id, text := range map[string]string{
			"1c40": `{"id":7232,"peerURLs":["https://10.0.0.2:2380"],"name":"cp-2"}`,
			"1c41": `{"id":7233,"peerURLs":["https://10.0.0.1:2380"],"name":"cp-1","isLearner":true}`,
			"1c42": `{`,
		} {
			if err := members.Put([]byte(id), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestASnapshotIsSummedUp(t *testing.T) {
	t.Parallel()
	content := seal(filled(t))
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := etcdsnapshot.Check(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	want := &etcdsnapshot.Summary{
		Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Hash: got.Hash, Revision: 300, Keys: 49, Version: "3.6.0",
		Members: []etcdsnapshot.Member{
			{ID: 0x1c41, Name: "cp-1", PeerURLs: []string{"https://10.0.0.1:2380"}, Learner: true},
			{ID: 0x1c40, Name: "cp-2", PeerURLs: []string{"https://10.0.0.2:2380"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Hash == "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestAFileThatIsNoWholeSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	whole := seal(filled(t))
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	empty := database(t, func(*bolt.Tx) {})
	broken := filled(t)
	for i := range 64 { // of pages in the middle, under a checksum that is right
		copy(broken[len(broken)/2+i*256:], bytes.Repeat([]byte{0xff}, 128))
	}
	odd := database(t, func(tx *bolt.Tx) {
		bucket(t, tx, "meta")
		if err := bucket(t, tx, "key").Put([]byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	})
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"cut short":                                   {whole[:len(whole)-sha256.Size], "no checksum"},
		"cut in the middle":                           {whole[:len(whole)/2/512*512+32], "checksum is wrong"},
		"nothing":                                     {nil, "no checksum"},
		"only a checksum":                             {seal(nil), "no checksum"},
		"a bit is wrong":                              {flipped, "checksum is wrong"},
		"no database, with a checksum":                {seal(bytes.Repeat([]byte("x"), 1<<16)), "no database of etcd"},
		"another's database":                          {seal(empty), "not of etcd"},
		"pages are damaged under a checksum":          {seal(broken), "damaged"},
		"a database of etcd with a change of no kind": {seal(odd), "without a revision"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "snapshot.db")
			if err := os.WriteFile(path, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := etcdsnapshot.Check(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %+v, %v; want an error with %q and the file's name", got, err, tc.want)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := etcdsnapshot.Check(ctx, path); !errors.Is(err, stopped) {
		t.Errorf("after its context: %v", err)
	}
}

func TestASnapshotIsSavedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	content := seal(filled(t))
	gone := errors.New("the machine is gone")
	give := func(content []byte, err error) func(context.Context, io.Writer) error {
		return func(_ context.Context, to io.Writer) error {
			if _, writeErr := to.Write(content); writeErr != nil {
				return writeErr
			}
			return err
		}
	}
	for name, tc := range map[string]struct {
		take    func(context.Context, io.Writer) error
		before  string
		wantErr string
	}{
		"whole":                      {take: give(content, nil)},
		"the machine breaks off":     {take: give(content[:4096], gone), wantErr: gone.Error()},
		"it was cut short unnoticed": {take: give(content[:4096], nil), wantErr: "no checksum"},
		"there is a file":            {take: give(content, nil), before: "an older snapshot", wantErr: "exists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "etcd.db")
			if tc.before != "" {
				if err := os.WriteFile(path, []byte(tc.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := etcdsnapshot.Save(t.Context(), path, tc.take)
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got error %v, want %q", err, tc.wantErr)
			}
			want := map[string]string{}
			switch {
			case tc.before != "":
				want["etcd.db"] = tc.before
			case tc.wantErr == "":
				want["etcd.db"] = string(content)
			}
			got := map[string]string{}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
				if err != nil {
					t.Fatal(err)
				}
				got[entry.Name()] = string(text)
				if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s has mode %v, %v", entry.Name(), info.Mode(), err)
				}
			}
			if len(got) != len(want) || got["etcd.db"] != want["etcd.db"] {
				t.Errorf("the folder has %d files, want %d, or another content", len(got), len(want))
			}
		})
	}
}

func TestAFileThatComesMeanwhileIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "etcd.db")
	content := seal(filled(t))
	_, err := etcdsnapshot.Save(t.Context(), path, func(_ context.Context, to io.Writer) error {
		if err := os.WriteFile(path, []byte("another's"), 0o600); err != nil {
			return err
		}
		_, err := to.Write(content)
		return err
	})
	text, readErr := os.ReadFile(path)
	if !errors.Is(err, etcdsnapshot.ErrExists) || readErr != nil || string(text) != "another's" {
		t.Errorf("got %v; the file holds %q, %v", err, text, readErr)
	}
}
