// SPDX-License-Identifier: Apache-2.0

// Package disk is what a hollow machine keeps when its power goes: a folder that stands for its disks and NVRAM.
//
// META, STATE and EPHEMERAL are on the system disk and exist only once something was installed. Nothing here knows what
// the machine does; a wipe or a power cut is a change to this folder and nothing else.
package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Layout of the folder.
const (
	systemFile    = "system.json"
	metaFile      = "meta.json"
	stateDir      = "state"
	configFile    = "config.yaml"
	identityFile  = "node-identity"
	ephemeralDir  = "ephemeral"
	logDir        = "logs"
	applyLogFile  = "applies.jsonl"
	deedLogFile   = "deeds.jsonl"
	hardwareFile  = "hardware.json"
	folderMode    = 0o700
	fileMode      = 0o600
	maxConfigSize = 32 << 20
)

// Slot is one bootable installation of the A/B pair.
type Slot struct {
	// Version is what boots from it, with its "v".
	Version string `json:"version"`
	// Image is the installer image that wrote it.
	Image string `json:"image"`
	// Schematic is the Image Factory schematic of that image, "" if the image does not name one.
	Schematic string `json:"schematic,omitempty"`
}

// Installation is what the installer left on the system disk.
type Installation struct {
	// Device is the system disk, /dev/nvme0n1.
	Device string `json:"device"`
	// Serial and WWID are those of the disk that was written: a swapped disk isn't the system disk any more.
	Serial string `json:"serial,omitempty"`
	WWID   string `json:"wwid,omitempty"`
	// Current boots next; Previous is what a rollback goes back to.
	Current  Slot  `json:"current"`
	Previous *Slot `json:"previous,omitempty"`
}

// Folder is the persistent part of one machine. Its methods may be called from any goroutine.
type Folder struct {
	dir string
	mu  sync.Mutex
}

// Open makes the folder if it is missing.
func Open(dir string) (*Folder, error) {
	f := &Folder{dir: dir}
	for _, sub := range []string{"", logDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), folderMode); err != nil {
			return nil, fmt.Errorf("machine folder: %w", err)
		}
	}
	return f, nil
}

// LogDir is where child processes of the machine log to. It is no part of the machine: no wipe empties it.
func (f *Folder) LogDir() string { return filepath.Join(f.dir, logDir) }

// ApplyLog is the file that records applied configurations (without their text).
func (f *Folder) ApplyLog() string { return filepath.Join(f.dir, applyLogFile) }

// DeedLog is the file that records what the machine did.
func (f *Folder) DeedLog() string { return filepath.Join(f.dir, deedLogFile) }

// EphemeralDir is the folder that stands for /var.
func (f *Folder) EphemeralDir() string { return filepath.Join(f.dir, ephemeralDir) }

// PrepareEphemeral makes /var as it is after its volume was mounted.
func (f *Folder) PrepareEphemeral() error {
	return os.MkdirAll(filepath.Join(f.EphemeralDir(), "lib"), folderMode)
}

// Installed returns the installation, nil if there is none.
func (f *Folder) Installed() (*Installation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return readJSON[Installation](filepath.Join(f.dir, systemFile))
}

// Install writes an installation: a fresh one starts with empty partitions, one over an existing one keeps them and
// moves what was current to previous.
func (f *Folder) Install(i Installation, fresh bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fresh {
		if err := f.wipe(stateDir, ephemeralDir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(f.dir, stateDir), folderMode); err != nil {
		return fmt.Errorf("make STATE: %w", err)
	}
	return writeJSON(filepath.Join(f.dir, systemFile), i)
}

// Wipe destroys everything on the system disk: the installation, META, STATE and EPHEMERAL.
func (f *Folder) Wipe() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wipe(systemFile, metaFile, stateDir, ephemeralDir)
}

// ErrNoPartition tells that a label is not one of the partitions with contents.
var ErrNoPartition = errors.New("no such partition")

// WipePartition empties one system partition by its label.
func (f *Folder) WipePartition(label string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch label {
	case "META":
		return f.wipe(metaFile)
	case "STATE":
		return f.wipe(stateDir)
	case "EPHEMERAL":
		return f.wipe(ephemeralDir)
	case "BOOT", "EFI", "BIOS":
		// Without a bootloader the disk does not boot: the same as no installation.
		return f.wipe(systemFile)
	}
	return fmt.Errorf("%s: %w", label, ErrNoPartition)
}

func (f *Folder) wipe(names ...string) error {
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(f.dir, name)); err != nil {
			return fmt.Errorf("wipe %s: %w", name, err)
		}
	}
	return nil
}

// Config is the configuration in STATE, nil if there is none.
func (f *Folder) Config() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := os.ReadFile(filepath.Join(f.dir, stateDir, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if len(data) > maxConfigSize {
		return nil, fmt.Errorf("configuration in STATE: %d bytes is too large", len(data))
	}
	return data, err
}

// WriteConfig writes the configuration to STATE; it is an error without an installation.
func (f *Folder) WriteConfig(data []byte) error {
	return f.writeState(configFile, data)
}

// Identity is the node identity in STATE, "" if there is none.
func (f *Folder) Identity() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := os.ReadFile(filepath.Join(f.dir, stateDir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(data), err
}

// WriteIdentity writes the node identity to STATE.
func (f *Folder) WriteIdentity(id string) error { return f.writeState(identityFile, []byte(id)) }

func (f *Folder) writeState(name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := os.Stat(filepath.Join(f.dir, systemFile)); err != nil {
		return fmt.Errorf("write %s to STATE: nothing is installed: %w", name, err)
	}
	// A wiped STATE is formatted again when it is next used.
	if err := os.MkdirAll(filepath.Join(f.dir, stateDir), folderMode); err != nil {
		return fmt.Errorf("make STATE: %w", err)
	}
	return writeFile(filepath.Join(f.dir, stateDir, name), data)
}

// Meta are the values of the META partition by tag.
func (f *Folder) Meta() (map[uint8]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	values, err := readJSON[map[uint8]string](filepath.Join(f.dir, metaFile))
	if err != nil || values == nil {
		return map[uint8]string{}, err
	}
	return *values, nil
}

// WriteMeta replaces the values of the META partition.
func (f *Folder) WriteMeta(values map[uint8]string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return writeJSON(filepath.Join(f.dir, metaFile), values)
}

// ReadHardware reads what was changed about the hardware, nil if nothing ever was.
func ReadHardware[T any](f *Folder) (*T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return readJSON[T](filepath.Join(f.dir, hardwareFile))
}

// WriteHardware remembers a change of the hardware (another NIC, another address, no power).
func WriteHardware[T any](f *Folder, value T) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return writeJSON(filepath.Join(f.dir, hardwareFile), value)
}

func readJSON[T any](file string) (*T, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value := new(T)
	if err := json.Unmarshal(data, value); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return value, nil
}

func writeJSON(file string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return writeFile(file, data)
}

// writeFile replaces a file in one step, so that a kill leaves the old or the new one.
func writeFile(file string, data []byte) error {
	next := file + ".next"
	if err := os.WriteFile(next, data, fileMode); err != nil {
		return err
	}
	return os.Rename(next, file)
}
