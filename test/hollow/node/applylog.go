// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Apply is the record of one ApplyConfiguration call that carried bytes. The configuration itself holds keys and is not
// in it.
type Apply struct {
	Time   time.Time `json:"time"`
	BootID string    `json:"bootID"`
	Mode   string    `json:"mode"`
	DryRun bool      `json:"dryRun,omitempty"`
	// Maintenance tells that the node had no configuration when it came.
	Maintenance bool   `json:"maintenance,omitempty"`
	Size        int    `json:"size"`
	SHA256      string `json:"sha256"`
	// Peer is the address it came from.
	Peer string `json:"peer,omitempty"`
	// Outcome is the mode that was chosen, or the error's code and text.
	Outcome string `json:"outcome"`
	// Accepted tells that the call returned without an error.
	Accepted bool `json:"accepted"`
}

// applyLog is the file of records; it belongs to the observer, so no wipe touches it.
type applyLog struct {
	file string
	mu   sync.Mutex
	list []Apply
}

func openApplyLog(file string) (*applyLog, error) {
	l := &applyLog{file: file}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("apply log: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var a Apply
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, fmt.Errorf("apply log %s: %w", file, err)
		}
		l.list = append(l.list, a)
	}
	return l, lines.Err()
}

func (l *applyLog) add(a Apply, data []byte) error {
	sum := sha256.Sum256(data)
	a.Size, a.SHA256, a.Time = len(data), hex.EncodeToString(sum[:]), time.Now().UTC()
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, a)
	f, err := os.OpenFile(l.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("apply log: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func (l *applyLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

func (l *applyLog) all() []Apply {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}
