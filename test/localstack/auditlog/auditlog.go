// SPDX-License-Identifier: Apache-2.0

// Package auditlog gathers the audit logs of all control planes of a local stack in one file, so that a person looks in
// one place whichever kube-apiserver took his request. Lines are copied whole and unchanged; those of one control plane
// keep their order.
package auditlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// interval is the time between two looks at the sources.
	interval = 200 * time.Millisecond
	// maxLine bounds a line; an audit event with bodies can be as large as two requests.
	maxLine = 16 << 20
	// maxTarget is the size at which the gathered log is set aside (once, as target.1).
	maxTarget = 256 << 20
)

// Keep decides by a line, which ends with a newline, whether it is copied.
type Keep func(line []byte) bool

// Follow copies the lines to keep that are or get written in the files that match pattern into target, until ctx is
// done. The target is written anew at the start. Sources may appear later, be rotated or vanish.
func Follow(ctx context.Context, pattern, target string, keep Keep, logger *slog.Logger) error {
	f := &follower{pattern: pattern, target: target, keep: keep, sources: map[string]*source{}}
	if err := f.create(); err != nil {
		return err
	}
	defer f.close()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := f.round(); err != nil {
			logger.Warn("gather audit logs", "error", err)
		}
		select {
		case <-ctx.Done():
			// What was written just before the end belongs to the log too.
			f.listAgain = time.Time{}
			return f.round()
		case <-ticker.C:
		}
	}
}

type follower struct {
	pattern, target string
	keep            Keep
	out             *os.File
	written         int64
	sources         map[string]*source
	// paths are the sources as they were listed last, and listAgain is when that is worth doing again.
	paths     []string
	listAgain time.Time
}

func (f *follower) create() (err error) {
	f.written = 0
	if f.out, err = os.OpenFile(f.target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
		return fmt.Errorf("gathered audit log: %w", err)
	}
	return nil
}

// write adds a line; a log that has grown too large is set aside first.
func (f *follower) write(line []byte) error {
	if f.written > maxTarget {
		if err := errors.Join(f.out.Close(), os.Rename(f.target, f.target+".1"), f.create()); err != nil {
			return err
		}
	}
	n, err := f.out.Write(line)
	f.written += int64(n)
	return err
}

// source is a file that is read as it grows.
type source struct {
	file    *os.File
	info    fs.FileInfo
	reader  *bufio.Reader
	partial []byte
}

func (f *follower) close() {
	for _, s := range f.sources {
		_ = s.file.Close() // read only
	}
	_ = f.out.Close() // every write was checked
}

// round takes what every source has to give. The sources are looked at in the order of their names.
func (f *follower) round() error {
	if err := f.list(); err != nil {
		return err
	}
	var faults []error
	for _, path := range f.paths {
		if err := f.take(path); err != nil {
			faults = append(faults, fmt.Errorf("audit log %s: %w", path, err))
		}
	}
	return errors.Join(faults...)
}

// listingShare is how much of the time may be spent with listing sources: one part in that many. A thousand machines have
// a folder each.
const listingShare = 50

// list looks for sources, unless that was done a moment ago and took long.
func (f *follower) list() error {
	begun := time.Now()
	if begun.Before(f.listAgain) {
		return nil
	}
	paths, err := filepath.Glob(f.pattern)
	if err != nil {
		return fmt.Errorf("audit logs %s: %w", f.pattern, err)
	}
	f.paths = slices.Sorted(slices.Values(paths))
	now := time.Now()
	f.listAgain = now.Add(listingShare * now.Sub(begun))
	return nil
}

// take reads one source to its end; a rotated file is read to its end first, then the new one from its start.
func (f *follower) take(path string) error {
	if s := f.sources[path]; s != nil {
		if err := f.drain(s); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && os.SameFile(info, s.info) {
			return nil
		}
		delete(f.sources, path)
		if err := s.file.Close(); err != nil {
			return err
		}
	}
	s, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.sources[path] = s
	return f.drain(s)
}

func open(path string) (*source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &source{file: file, info: info, reader: bufio.NewReaderSize(file, 1<<20)}, nil
}

// drain copies whole lines; the start of one that is still being written is kept for the next round.
func (f *follower) drain(s *source) error {
	for {
		chunk, err := s.reader.ReadBytes('\n')
		s.partial = append(s.partial, chunk...)
		if len(s.partial) > maxLine {
			s.partial = nil
			return fmt.Errorf("a line is longer than %d bytes", maxLine)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line := s.partial
		s.partial = nil
		if !f.keep(line) {
			continue
		}
		if err := f.write(line); err != nil {
			return err
		}
	}
}
