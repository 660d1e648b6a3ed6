// SPDX-License-Identifier: Apache-2.0

// Package snapshot keeps a fresh snapshot of a cluster's etcd in a directory, so that there is one before a control plane
// goes down. Each is checked as a whole, and encrypted with a key that the cluster's secrets bundle gives: who can restore
// the cluster can read it. It decides nothing about machines.
package snapshot

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"maesh.dev/ichor/pkg/etcdsnapshot"
)

const (
	// MaxAge is how old a snapshot is at most that still counts as fresh.
	MaxAge = 30 * time.Minute
	// kept is how many snapshots of a cluster are kept.
	kept = 3
	// workFactor of scrypt is low, as the passphrase is a key of 256 bits already.
	workFactor = 10

	suffix   = ".db.age"
	timeForm = "20060102T150405Z"
)

// Passphrase is what the snapshots of a cluster are encrypted with, as age reads it. It comes from the private key of
// etcd's certificate authority, which control planes and the secrets bundle have, and nobody else.
func Passphrase(etcdKey []byte) (string, error) {
	if len(etcdKey) == 0 {
		return "", errors.New("the secrets bundle has no key of etcd's certificate authority")
	}
	key, err := hkdf.Key(sha256.New, etcdKey, nil, "ichor.maesh.dev etcd snapshot", 32)
	if err != nil {
		return "", fmt.Errorf("derive the key of snapshots: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(key), nil
}

// Keeper keeps the snapshots of clusters in a directory.
type Keeper struct {
	// Directory is made if it isn't there; only its owner may read it.
	Directory string

	once sync.Once
	// turn holds who works in the directory: taking a snapshot may take long, and who waits for it may have less time.
	turn chan struct{}
}

// enter waits for its turn in the directory, as long as ctx allows.
func (k *Keeper) enter(ctx context.Context) (leave func(), err error) {
	k.once.Do(func() { k.turn = make(chan struct{}, 1) })
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another snapshot of etcd is being taken: %w", context.Cause(ctx))
	}
}

// Take writes a snapshot of etcd.
type Take func(ctx context.Context, to io.Writer) error

// Fresh sees to it that there is a snapshot of a cluster that is no older than MaxAge, and says which. It takes one if
// there is none.
func (k *Keeper) Fresh(ctx context.Context, cluster, passphrase string, now time.Time, take Take) (name string, err error) {
	leave, err := k.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	if err := os.MkdirAll(k.Directory, 0o700); err != nil {
		return "", fmt.Errorf("make the directory for snapshots of etcd (--etcd-snapshot-dir): %w", err)
	}
	if err := k.sweep(); err != nil {
		return "", err
	}
	all, err := k.list(cluster)
	if err != nil {
		return "", err
	}
	for _, file := range all {
		if age := now.Sub(file.at); age >= -time.Minute && age <= MaxAge {
			return file.name, nil
		}
	}
	name = cluster + "-" + now.UTC().Format(timeForm) + suffix
	if err := k.save(ctx, name, passphrase, take); err != nil {
		return "", err
	}
	return name, k.prune(cluster, name)
}

// file is a snapshot that was checked and encrypted.
type file struct {
	name string
	at   time.Time
}

// list gives the snapshots of a cluster, the oldest first. Only whole ones have such names.
func (k *Keeper) list(cluster string) ([]file, error) {
	entries, err := os.ReadDir(k.Directory)
	if err != nil {
		return nil, fmt.Errorf("read the directory for snapshots of etcd: %w", err)
	}
	var all []file
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), cluster+"-")
		stamp, whole := strings.CutSuffix(rest, suffix)
		if at, err := time.Parse(timeForm, stamp); ours && whole && err == nil {
			all = append(all, file{entry.Name(), at})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return a.at.Compare(b.at) })
	return all, nil
}

// save takes a snapshot, checks it, encrypts it, and reads it back before it gets its name. The plain one is gone then.
func (k *Keeper) save(ctx context.Context, name, passphrase string, take Take) error {
	work, err := os.MkdirTemp(k.Directory, ".taking-") // mode 0700
	if err != nil {
		return fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // what stays is swept by the next one
	plain, sealed := filepath.Join(work, "plain"), filepath.Join(work, "sealed")
	if _, err := etcdsnapshot.Save(ctx, plain, take); err != nil {
		return err
	}
	sum, err := seal(ctx, plain, sealed, passphrase)
	if err != nil {
		return fmt.Errorf("encrypt the snapshot of etcd: %w", err)
	}
	again, err := sumSealed(ctx, sealed, passphrase)
	if err != nil {
		return fmt.Errorf("read the encrypted snapshot of etcd back: %w", err)
	}
	if sum != again {
		return errors.New("the encrypted snapshot of etcd reads back as something else; is the disk sound?")
	}
	if err := os.Rename(sealed, filepath.Join(k.Directory, name)); err != nil {
		return fmt.Errorf("name the snapshot of etcd: %w", err)
	}
	return nil
}

// seal encrypts a file, and gives the checksum of what was in it.
func seal(ctx context.Context, plain, sealed, passphrase string) (sum [sha256.Size]byte, err error) {
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return sum, err
	}
	recipient.SetWorkFactor(workFactor)
	from, err := os.Open(plain)
	if err != nil {
		return sum, err
	}
	defer from.Close() //nolint:errcheck // it was read from only
	to, err := os.OpenFile(sealed, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	into, err := age.Encrypt(to, recipient)
	if err != nil {
		return sum, err
	}
	hash := sha256.New()
	if _, err := io.Copy(into, io.TeeReader(&reader{ctx, from}, hash)); err != nil {
		return sum, err
	}
	if err := errors.Join(into.Close(), to.Sync()); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// sumSealed is the checksum of what an encrypted file holds.
func sumSealed(ctx context.Context, sealed, passphrase string) (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	if err := Open(ctx, sealed, passphrase, hash); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// Open decrypts a snapshot.
func Open(ctx context.Context, sealed, passphrase string, to io.Writer) error {
	identity, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return err
	}
	identity.SetMaxWorkFactor(workFactor)
	from, err := os.Open(sealed)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // it was read from only
	plain, err := age.Decrypt(&reader{ctx, from}, identity)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, plain)
	return err
}

// reader ends with its context.
type reader struct {
	ctx  context.Context //nolint:containedctx // one copy, begun and ended in one function
	from io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// prune removes all but the newest snapshots of a cluster, never the one that was just taken, whatever the clock said before.
func (k *Keeper) prune(cluster, taken string) error {
	all, err := k.list(cluster)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(f file) bool { return f.name == taken })
	var errs []error
	for _, old := range all[:max(len(all)-(kept-1), 0)] {
		errs = append(errs, os.Remove(filepath.Join(k.Directory, old.name)))
	}
	return errors.Join(errs...)
}

// sweep removes what an interrupted snapshot left, which may be plain.
func (k *Keeper) sweep() error {
	leftovers, err := filepath.Glob(filepath.Join(k.Directory, ".taking-*"))
	errs := []error{err}
	for _, leftover := range leftovers {
		errs = append(errs, os.RemoveAll(leftover))
	}
	return errors.Join(errs...)
}
