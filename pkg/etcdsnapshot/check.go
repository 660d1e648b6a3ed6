// SPDX-License-Identifier: Apache-2.0

package etcdsnapshot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// Summary is what a snapshot holds.
type Summary struct {
	// Size of the file in bytes, and its SHA-256 in hexadecimal: what sha256sum prints.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Hash is what "etcdutl snapshot status" prints: the CRC-32 (Castagnoli) of all that is in the database.
	Hash string `json:"hash"`
	// Revision is the latest change that is in it.
	Revision int64 `json:"revision"`
	// Keys counts the keys that weren't deleted.
	Keys int `json:"keys"`
	// Version of etcd's storage; empty before etcd 3.6.
	Version string `json:"version,omitempty"`
	// Members of the cluster as the member knew them that the snapshot was taken from.
	Members []Member `json:"members"`
}

// Member is a member of etcd as its database holds it.
type Member struct {
	ID       uint64   `json:"-"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
	Learner  bool     `json:"learner"`
}

// Format of the database. Source: etcd, server/storage/schema/bucket.go and server/storage/mvcc/revision.go.
const (
	keyBucket     = "key"
	metaBucket    = "meta"
	membersBucket = "members"
	versionKey    = "storageVersion"

	// A key is an 8 byte revision, an underscore and an 8 byte number within the revision; a deletion has one more byte.
	revisionLength = 17
	separatorAt    = 8

	// sector is the unit of a database's size, so a file with a checksum behind it shows by its length.
	// Source: etcd, etcdutl/snapshot/v3_snapshot.go (hasChecksum).
	sector = 512
)

// maxMembers bounds how many members are kept.
const maxMembers = 64

// ErrNoChecksum is a file without the checksum that etcd appends: it was cut short, or is a copy of a database.
var ErrNoChecksum = errors.New("it has no checksum at its end: it is not whole, or not a snapshot")

// Check proves that a file is a whole snapshot of etcd and sums up what is in it. It reads all of the file, more than
// once.
func Check(ctx context.Context, path string) (*Summary, error) {
	summary := &Summary{Members: []Member{}}
	if err := summary.readFile(ctx, path); err != nil {
		return nil, fmt.Errorf("check etcd snapshot %s: %w", path, err)
	}
	// The file is opened without the checksum's bytes in the way: the database ends before them.
	database, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) {
		return nil, fmt.Errorf("check etcd snapshot %s: it is no database of etcd", path)
	}
	if err != nil {
		return nil, fmt.Errorf("check etcd snapshot %s: %w", path, err)
	}
	defer database.Close() //nolint:errcheck // read only
	if err := database.View(func(tx *bolt.Tx) error { return summary.readDatabase(ctx, path, tx) }); err != nil {
		return nil, fmt.Errorf("check etcd snapshot %s: %w", path, err)
	}
	return summary, nil
}

// readFile compares the file with the checksum at its end.
func (s *Summary) readFile(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return err
	}
	s.Size = info.Size()
	if s.Size%sector != sha256.Size || s.Size < sector {
		return ErrNoChecksum
	}
	content, whole := sha256.New(), sha256.New()
	reader := &cancellable{ctx: ctx, from: file}
	if _, err := io.CopyN(io.MultiWriter(content, whole), reader, s.Size-sha256.Size); err != nil {
		return err
	}
	trailer, err := io.ReadAll(io.LimitReader(reader, sha256.Size+1))
	if err != nil {
		return err
	}
	whole.Write(trailer)
	s.SHA256 = hex.EncodeToString(whole.Sum(nil))
	if !bytes.Equal(trailer, content.Sum(nil)) {
		return errors.New("its checksum is wrong: it is damaged")
	}
	return nil
}

// cancellable is a reader that ends with a context.
type cancellable struct {
	ctx  context.Context
	from io.Reader
}

func (c *cancellable) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.from.Read(p)
}

func (s *Summary) readDatabase(ctx context.Context, path string, tx *bolt.Tx) (err error) {
	defer func() {
		if cause := recover(); cause != nil { // bbolt panics on pages that aren't what they say
			err = errors.New("the database is damaged")
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // and faults where the file is shorter than it says
	if err := checkPages(path, tx); err != nil {
		return err
	}
	if tx.Bucket([]byte(keyBucket)) == nil || tx.Bucket([]byte(metaBucket)) == nil {
		return errors.New("the database is not of etcd")
	}
	s.Version = string(tx.Bucket([]byte(metaBucket)).Get([]byte(versionKey)))
	s.readMembers(tx.Bucket([]byte(membersBucket)))
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	living := map[string]struct{}{}
	err = tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		sum.Write(name)
		keys := string(name) == keyBucket
		return bucket.ForEach(func(key, value []byte) error {
			sum.Write(key)
			sum.Write(value)
			if !keys {
				return nil
			}
			return s.readChange(ctx, key, value, living)
		})
	})
	s.Keys, s.Hash = len(living), strconv.FormatUint(uint64(sum.Sum32()), 16)
	return err
}

// readChange takes in one change of one key.
func (s *Summary) readChange(ctx context.Context, key, value []byte, living map[string]struct{}) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(key) < revisionLength || len(key) > revisionLength+1 || key[separatorAt] != '_' {
		return errors.New("the database holds a change without a revision")
	}
	s.Revision = int64(binary.BigEndian.Uint64(key))
	var pair mvccpb.KeyValue
	if err := proto.Unmarshal(value, &pair); err != nil {
		return fmt.Errorf("the database's revision %d can't be read", s.Revision)
	}
	if len(key) == revisionLength {
		living[string(pair.GetKey())] = struct{}{}
	} else {
		delete(living, string(pair.GetKey()))
	}
	return nil
}

// readMembers reads who belongs to the cluster; what can't be read is left out, since a restore makes it anew.
func (s *Summary) readMembers(bucket *bolt.Bucket) {
	if bucket == nil {
		return
	}
	_ = bucket.ForEach(func(key, value []byte) error {
		var stored struct {
			Name     string   `json:"name"`
			PeerURLs []string `json:"peerURLs"`
			Learner  bool     `json:"isLearner"`
		}
		id, err := strconv.ParseUint(string(key), 16, 64)
		if err != nil || json.Unmarshal(value, &stored) != nil || len(s.Members) == maxMembers {
			return nil
		}
		s.Members = append(s.Members, Member{ID: id, Name: stored.Name, PeerURLs: stored.PeerURLs, Learner: stored.Learner})
		return nil
	})
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
}
