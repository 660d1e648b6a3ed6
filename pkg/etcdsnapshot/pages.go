// SPDX-License-Identifier: Apache-2.0

package etcdsnapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	bolt "go.etcd.io/bbolt"
)

// The form of a database's pages. Source: bbolt, internal/common/{page,bucket}.go.
const (
	pageHeader    = 16
	branchElement = 16
	leafElement   = 16
	bucketHeader  = 16

	branchPage = 0x01
	leafPage   = 0x02
	bucketLeaf = 0x01

	// maxDepth is deeper than any database gets: each level holds many keys.
	maxDepth = 64
)

var (
	errForm  = errors.New("the database is damaged: a page isn't what it says, or points outside of itself or of the file")
	errOrder = errors.New("the database is damaged: keys are out of order")
)

// pages walks a database's pages and looks that whatever they point at lies where it can. The library maps the file into
// memory and follows those pointers unseen, and a fault of memory ends the process: what it is given to read must be safe
// to read. (The library's own check runs where a fault of memory can't be caught, and so does its reading of the list of
// free pages, which reading a snapshot doesn't need.)
type pages struct {
	file io.ReaderAt
	size int64 // of a page
	end  int64 // of the database
	// seen are pages that were walked: a tree has no page twice.
	seen map[uint64]bool
}

// checkPages looks at all pages that a database's keys are in.
func checkPages(path string, tx *bolt.Tx) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return err
	}
	p := &pages{file: file, size: int64(tx.DB().Info().PageSize), end: info.Size() - sha256.Size, seen: map[uint64]bool{}}
	return p.walk(uint64(tx.Cursor().Bucket().Root()), 0)
}

// walk follows a tree from its root.
func (p *pages) walk(id uint64, depth int) error {
	if depth > maxDepth || p.seen[id] {
		return errForm
	}
	p.seen[id] = true
	content, err := p.read(id)
	if err != nil {
		return err
	}
	return p.walkPage(content, depth)
}

// read reads a page with what overflows it.
func (p *pages) read(id uint64) ([]byte, error) {
	at := int64(id) * p.size //nolint:gosec // is compared before it is used
	if id > uint64(p.end/p.size) || at+p.size > p.end {
		return nil, errForm
	}
	var head [pageHeader]byte
	if _, err := p.file.ReadAt(head[:], at); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	length := (int64(binary.LittleEndian.Uint32(head[12:])) + 1) * p.size
	if binary.LittleEndian.Uint64(head[:]) != id || at+length > p.end {
		return nil, errForm
	}
	content := make([]byte, length)
	if _, err := p.file.ReadAt(content, at); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return content, nil
}

// walkPage looks at the elements of a page, which may be one inside of another page's value.
func (p *pages) walkPage(content []byte, depth int) error {
	if len(content) < pageHeader {
		return errForm
	}
	flags, count := binary.LittleEndian.Uint16(content[8:]), int(binary.LittleEndian.Uint16(content[10:]))
	switch flags {
	case branchPage:
		return p.walkBranch(content, count, depth)
	case leafPage:
		return p.walkLeaf(content, count, depth)
	default:
		return errForm
	}
}

func (p *pages) walkBranch(content []byte, count, depth int) error {
	if count == 0 || pageHeader+count*branchElement > len(content) {
		return errForm
	}
	var before []byte
	for i := range count {
		at := pageHeader + i*branchElement
		distance, length := binary.LittleEndian.Uint32(content[at:]), binary.LittleEndian.Uint32(content[at+4:])
		if !within(content, at, distance, length, 0) {
			return errForm
		}
		key := content[at+int(distance):][:length]
		if i > 0 && bytes.Compare(before, key) >= 0 {
			return errOrder
		}
		before = key
		if err := p.walk(binary.LittleEndian.Uint64(content[at+8:]), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *pages) walkLeaf(content []byte, count, depth int) error {
	if pageHeader+count*leafElement > len(content) {
		return errForm
	}
	var before []byte
	for i := range count {
		at := pageHeader + i*leafElement
		flags, pos := binary.LittleEndian.Uint32(content[at:]), binary.LittleEndian.Uint32(content[at+4:])
		key, value := binary.LittleEndian.Uint32(content[at+8:]), binary.LittleEndian.Uint32(content[at+12:])
		if !within(content, at, pos, key, value) {
			return errForm
		}
		name := content[at+int(pos):][:key]
		if i > 0 && bytes.Compare(before, name) >= 0 {
			return errOrder
		}
		before = name
		if flags&bucketLeaf == 0 {
			continue
		}
		start := at + int(pos) + int(key)
		if err := p.walkBucket(content[start:start+int(value)], depth); err != nil {
			return err
		}
	}
	return nil
}

// walkBucket follows a bucket: a small one has its page behind its header, a large one names its root.
func (p *pages) walkBucket(value []byte, depth int) error {
	if len(value) < bucketHeader || depth > maxDepth {
		return errForm
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return p.walk(root, depth+1)
	}
	return p.walkPage(value[bucketHeader:], depth+1)
}

// within tells whether a key and its value, which lie at a distance from their element, lie in the page.
func within(content []byte, element int, distance, key, value uint32) bool {
	return int64(element)+int64(distance)+int64(key)+int64(value) <= int64(len(content))
}
