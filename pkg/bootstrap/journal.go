// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	journalFile = "bootstrap.json"
	bundleFile  = "bundle.yaml"
	lockFile    = "lock"
	// unfinished starts the names of files that are being written; one that is left is of a run that was cut off.
	unfinished = ".new-"
)

// journal is what must outlive a run that is cut off. It is written, synced and renamed into place before the act that
// it announces.
type journal struct {
	Cluster string `json:"cluster"`
	// Identity of the machine that the first configuration is meant for.
	Identity *v1alpha1.MachineIdentity `json:"identity,omitempty"`
	// Versions that the machine is installed with.
	Versions v1alpha1.SettledVersions `json:"versions"`
	Apply    applyRecord              `json:"apply"`
	Etcd     etcdRecord               `json:"etcd"`

	dir  string
	lock *os.File
}

// applyRecord is the first configuration: announced, and seen to have been taken.
type applyRecord struct {
	Fingerprint string     `json:"fingerprint,omitempty"`
	ConfigHash  string     `json:"configHash,omitempty"`
	IntendedAt  *time.Time `json:"intendedAt,omitempty"`
	DoneAt      *time.Time `json:"doneAt,omitempty"`
	// SeenAt is when the machine was first seen to run it. What it runs later is Ichor's to change.
	SeenAt *time.Time `json:"seenAt,omitempty"`
}

// etcdRecord is the bootstrap of etcd: announced, and seen to have worked.
type etcdRecord struct {
	IntendedAt *time.Time `json:"intendedAt,omitempty"`
	DoneAt     *time.Time `json:"doneAt,omitempty"`
}

// openJournal reads the journal of a state directory, or begins one. The directory is locked against a second run until
// the journal is closed; the lock goes with the process, however it ends.
func openJournal(dir, cluster string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("state directory %s is used by another run; wait for it or end it", dir), lock.Close())
	}
	j, err := readJournal(dir, cluster)
	if err == nil {
		err = removeUnfinished(dir)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	j.lock = lock
	return j, nil
}

func readJournal(dir, cluster string) (*journal, error) {
	j := &journal{Cluster: cluster, dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("read the journal %s: it is no JSON of this program's: %w", filepath.Join(dir, journalFile), err)
	}
	if j.Cluster != cluster {
		return nil, fmt.Errorf("state directory %s is of cluster %s, not %s; use another directory", dir, j.Cluster, cluster)
	}
	return j, nil
}

// removeUnfinished removes what a run that was cut off was writing: it may hold the secrets, and nobody would look there.
func removeUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for unfinished files: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), unfinished) {
			continue
		}
		if err := removeIfThere(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove an unfinished file: %w", err)
		}
	}
	return nil
}

func (j *journal) close() {
	// Closing ends the lock; there is nothing to do about an error.
	_ = j.lock.Close()
}

func (j *journal) save() error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return writeDurably(filepath.Join(j.dir, journalFile), append(text, '\n'))
}

// writeDurably replaces a file so that after a crash there is the old or the new text, and after it returned the new.
func writeDurably(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, unfinished+"*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, removeIfThere(file.Name())))
		}
	}()
	// CreateTemp makes the file with mode 0600.
	if _, err := file.Write(text); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Sync(); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	handle, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(handle.Sync(), handle.Close())
}
