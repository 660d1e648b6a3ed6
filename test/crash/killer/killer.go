// SPDX-License-Identifier: Apache-2.0

// Package killer ends its own process, as a power cut would, once at every write that goes out over the edges it is put
// around: the connection to a Kubernetes API and the connections to machines. What was killed at is kept in a file, so
// that the process that comes after goes on to the next write. What is killed knows nothing of it.
package killer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// Moment is when, in the course of a write, the process is killed.
type Moment string

const (
	// Unsent is right before a write: what was written down about it before is there, the write isn't.
	Unsent Moment = "unsent"
	// Unanswered is once a request is on the wire: whether it is carried out is open.
	Unanswered Moment = "unanswered"
	// Answered is once the answer is there, before anybody was told.
	Answered Moment = "answered"
)

// Options say where to kill.
type Options struct {
	// Journal is the file of what was killed at, a line each.
	Journal string
	// Swap kills at requests on the way instead of when they were answered, and at calls of machines at the other one of
	// these two moments too.
	Swap bool
	// Unsent kills right before calls of machines too.
	Unsent bool
	// Operations kills at what operations write alone: at each state of their journals, claims, and settled versions.
	Operations bool
}

// Killer kills its process.
type Killer struct {
	options Options
	// end doesn't return.
	end func(key string)

	mu   sync.Mutex
	file *os.File
	seen map[string]bool
}

// Open reads the journal, or begins one.
func Open(o Options) (*Killer, error) {
	keys, err := Read(o.Journal)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(o.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal of kills: %w", err)
	}
	k := &Killer{options: o, end: kill, file: file, seen: map[string]bool{}}
	for _, key := range keys {
		k.seen[key] = true
	}
	return k, nil
}

// Read returns the lines of a journal, in the order of the kills.
func Read(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal of kills: %w", err)
	}
	var keys []string
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		keys = append(keys, lines.Text())
	}
	return keys, lines.Err()
}

// At kills the process unless it was killed at this moment of this write before. While one write kills, others wait.
func (k *Killer) At(moment Moment, w Write) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.options.Operations {
		if w.Operation == "" || w.Operation == unclaimed && !k.claimed(w) {
			return
		}
		w.State = w.Operation
	}
	key := w.key(moment)
	if k.seen[key] {
		return
	}
	k.seen[key] = true
	_, err := k.file.WriteString(key + "\n")
	if err = errors.Join(err, k.file.Sync()); err != nil {
		// Without a journal the same write would kill forever.
		panic(fmt.Sprintf("journal of kills: %v", err))
	}
	k.end(key)
}

// due tells whether At would kill.
func (k *Killer) due(moment Moment, w Write) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.seen[w.key(moment)]
}

// kill ends this process at once.
func kill(key string) {
	fmt.Fprintln(os.Stderr, "killer: killed at", key)
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}
