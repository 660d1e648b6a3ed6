// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// database makes what a member of etcd sends as its snapshot.
func database(t *testing.T, secret string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{"key", "meta", "members"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte("meta")).Put([]byte("note"), []byte(secret))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return append(content, sum[:]...)
}

func TestThereIsAFreshSnapshot(t *testing.T) {
	t.Parallel()
	passphrase, err := Passphrase([]byte("the key of etcd's authority"))
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a Secret of the cluster"
	content, taken := database(t, secret), 0
	keeper, ctx, now := &Keeper{Directory: filepath.Join(t.TempDir(), "snapshots")}, context.Background(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	take := func(_ context.Context, to io.Writer) error {
		taken++
		_, err := to.Write(content)
		return err
	}
	fresh := func(at time.Time) string {
		t.Helper()
		name, err := keeper.Fresh(ctx, "prod", passphrase, at, take)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	first := fresh(now)
	if fresh(now.Add(MaxAge)) != first || taken != 1 {
		t.Errorf("a fresh one was taken anew: %d were", taken)
	}
	for i := range 5 {
		fresh(now.Add(time.Duration(i+1) * (MaxAge + time.Second)))
	}
	entries, err := os.ReadDir(keeper.Directory)
	if err != nil || len(entries) != kept || taken != 6 {
		t.Fatalf("%d were taken, and %v are kept, %v", taken, entries, err)
	}
	for _, entry := range entries {
		path := filepath.Join(keeper.Directory, entry.Name())
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s may be read by others: %v", entry.Name(), info.Mode())
		}
		sealed, err := os.ReadFile(path)
		if err != nil || bytes.Contains(sealed, []byte(secret)) {
			t.Errorf("%s shows what is in it, %v", entry.Name(), err)
		}
		var plain bytes.Buffer
		if err := Open(ctx, path, passphrase, &plain); err != nil || !bytes.Equal(plain.Bytes(), content) {
			t.Errorf("%s doesn't hold the snapshot: %v", entry.Name(), err)
		}
		other, err := Passphrase([]byte("another cluster's"))
		if err != nil || Open(ctx, path, other, io.Discard) == nil {
			t.Errorf("%s opens with another key, %v", entry.Name(), err)
		}
	}
}

func TestASnapshotThatIsNotWholeIsNone(t *testing.T) {
	t.Parallel()
	content, ctx := database(t, "x"), context.Background()
	for name, take := range map[string]Take{
		"broken off": func(_ context.Context, to io.Writer) error {
			_, err := to.Write(content[:len(content)/2])
			return errors.Join(err, errors.New("the connection broke"))
		},
		"cut": func(_ context.Context, to io.Writer) error { _, err := to.Write(content[:len(content)/2]); return err },
		"changed": func(_ context.Context, to io.Writer) error {
			changed := bytes.Clone(content)
			changed[100] ^= 1
			_, err := to.Write(changed)
			return err
		},
	} {
		keeper := &Keeper{Directory: t.TempDir()}
		if got, err := keeper.Fresh(ctx, "prod", "secret", time.Now(), take); err == nil {
			t.Errorf("%s: %s counts as a snapshot", name, got)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the passphrase: %v", name, err)
		}
		if left, err := os.ReadDir(keeper.Directory); err != nil || len(left) > 0 {
			t.Errorf("%s: there is %v, %v", name, left, err)
		}
	}
	if _, err := Passphrase(nil); err == nil {
		t.Error("nothing gives a passphrase")
	}
}

// What a process left that was killed while it took a snapshot may be plain: it goes before anything else, also where the
// disk is full of it, or where there is a fresh one.
func TestWhatAKilledProcessLeftIsRemovedFirst(t *testing.T) {
	t.Parallel()
	content, keeper := database(t, "x"), &Keeper{Directory: t.TempDir()}
	leave := func() {
		t.Helper()
		dir := filepath.Join(keeper.Directory, ".taking-1")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "plain"), content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, take := range []Take{
		func(context.Context, io.Writer) error { return errors.New("no machine answers") },
		func(_ context.Context, to io.Writer) error { _, err := to.Write(content); return err },
		func(context.Context, io.Writer) error { return errors.New("it is fresh, and none is taken") },
	} {
		leave()
		_, _ = keeper.Fresh(t.Context(), "prod", "secret", time.Now(), take)
		if left, err := filepath.Glob(filepath.Join(keeper.Directory, ".taking-*")); err != nil || len(left) > 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
}

// Who waits for another's snapshot waits no longer than it has time.
func TestWaitingForAnothersSnapshotHasABound(t *testing.T) {
	t.Parallel()
	passphrase, err := Passphrase([]byte("the key of etcd's authority"))
	if err != nil {
		t.Fatal(err)
	}
	keeper, now := &Keeper{Directory: filepath.Join(t.TempDir(), "snapshots")}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	content := database(t, "nothing")
	go func() {
		_, err := keeper.Fresh(context.Background(), "prod", passphrase, now, func(_ context.Context, to io.Writer) error {
			close(begun)
			<-goOn
			_, err := to.Write(content)
			return err
		})
		ended <- err
	}()
	<-begun
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("its time is over"))
	_, err = keeper.Fresh(ctx, "prod", passphrase, now, func(context.Context, io.Writer) error { return errors.New("it was asked, too") })
	if err == nil || !strings.Contains(err.Error(), "another snapshot of etcd is being taken: its time is over") {
		t.Errorf("it says %v", err)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
