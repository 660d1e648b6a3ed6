// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// The kinds of deeds.
const (
	// DeedBoot is the start of a system.
	DeedBoot = "boot"
	// DeedInstaller is a run of the installer, to its end.
	DeedInstaller = "installer"
	// DeedToldReboot, DeedToldShutdown, DeedToldUpgrade and DeedToldReset are calls that were taken: a reboot, a shutdown, an
	// upgrade of the older kind, a reset.
	DeedToldReboot   = "told-reboot"
	DeedToldShutdown = "told-shutdown"
	DeedToldUpgrade  = "told-upgrade"
	DeedToldReset    = "told-reset"
	// DeedPull is a pull that ended well.
	DeedPull = "pull"
)

// Deed is one thing that a machine did.
type Deed struct {
	Time   time.Time `json:"time"`
	BootID string    `json:"bootID"`
	What   string    `json:"what"`
	// Version is the one that booted; Image the one that was pulled or whose installer ran.
	Version string `json:"version,omitempty"`
	Image   string `json:"image,omitempty"`
	// Graceful and Disks are a reset's: whether etcd is left first, and the user disks that are wiped besides the system's.
	Graceful bool     `json:"graceful,omitempty"`
	Disks    []string `json:"disks,omitempty"`
	// Error is why the installer failed.
	Error string `json:"error,omitempty"`
}

// deedLog is the file of deeds; it belongs to the observer, so no wipe touches it.
type deedLog struct {
	file string
	mu   sync.Mutex
	list []Deed
}

func openDeedLog(file string) (*deedLog, error) {
	l := &deedLog{file: file}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log of deeds: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var d Deed
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return nil, fmt.Errorf("log of deeds %s: %w", file, err)
		}
		l.list = append(l.list, d)
	}
	return l, lines.Err()
}

func (l *deedLog) add(d Deed) error {
	d.Time = time.Now().UTC()
	line, err := json.Marshal(d)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, d)
	f, err := os.OpenFile(l.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of deeds: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func (l *deedLog) all() []Deed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// did writes down what the machine did in this boot.
func (b *boot) did(d Deed) {
	d.BootID = b.id
	if err := b.node.deeds.add(d); err != nil {
		b.log.Error("record a deed", "error", err)
	}
}

// Deeds are what the machine did, in order.
func (n *Node) Deeds() []Deed { return n.deeds.all() }
