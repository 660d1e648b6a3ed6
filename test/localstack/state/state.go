// SPDX-License-Identifier: Apache-2.0

// Package state is the folder of a local stack: which file is where, who holds the folder, and which processes belong
// to it. It starts and ends nothing.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
)

// Dir is the folder of a stack. Its methods are paths in it.
type Dir string

// Open makes the folder if it is missing and returns its absolute path.
func Open(path string) (Dir, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("state folder %s: %w", path, err)
	}
	d := Dir(absolute)
	for _, folder := range []string{absolute, d.Logs(), d.Run(), d.PKI(), d.Machines(), d.Bootstrap()} {
		if err := os.MkdirAll(folder, folderMode); err != nil {
			return "", fmt.Errorf("state folder: %w", err)
		}
	}
	return d, nil
}

// What people use.

// Kubeconfig of an administrator.
func (d Dir) Kubeconfig() string { return d.at("kubeconfig") }

// KubeconfigOf a person with one of Ichor's roles: viewer or operator.
func (d Dir) KubeconfigOf(person string) string { return d.at(person + ".kubeconfig") }

// TalosConfig of an administrator.
func (d Dir) TalosConfig() string { return d.at("talosconfig") }

// AuditLog has the audit events of all kube-apiservers.
func (d Dir) AuditLog() string { return d.at("audit.log") }

// Logs is the folder of log files.
func (d Dir) Logs() string { return d.at("logs") }

// Log is the log file of a component.
func (d Dir) Log(component string) string { return filepath.Join(d.Logs(), component+".log") }

// Snapshots is the folder of ichor-controller's snapshots of etcd.
func (d Dir) Snapshots() string { return d.at("etcd-snapshots") }

// Ready is written last, once everything works.
func (d Dir) Ready() string { return d.at("ready") }

// What the stack needs for itself.

// Fleet is the fleet file with the addresses of this stack.
func (d Dir) Fleet() string { return d.at("fleet.yaml") }

// Machines is the folder of the hollow machines.
func (d Dir) Machines() string { return d.at("machines") }

// Bootstrap is the folder of the first node's bootstrap.
func (d Dir) Bootstrap() string { return d.at("bootstrap") }

// PKI is the folder of certificates, tokens and kubeconfigs of the components.
func (d Dir) PKI() string { return d.at("pki") }

// Run is the folder of what is there only while the stack runs.
func (d Dir) Run() string { return d.at("run") }

func (d Dir) at(name string) string { return filepath.Join(string(d), name) }

// Write replaces a file of the stack in one step; it is readable by its owner only.
func Write(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, fileMode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Record is what a stack must know of itself when it is started again.
type Record struct {
	// Range are its loopback addresses.
	Range netip.Prefix `json:"range"`
	// FirstMachine is the name of the machine that became the first control plane.
	FirstMachine string `json:"firstMachine"`
}

// Load reads the record; nil if the folder is a new one.
func (d Dir) Load() (*Record, error) {
	data, err := os.ReadFile(d.at("stack.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record of the stack: %w", err)
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("record of the stack %s: %w; remove the folder to start anew", d.at("stack.json"), err)
	}
	return r, nil
}

// Save writes the record.
func (d Dir) Save(r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record of the stack: %w", err)
	}
	return Write(d.at("stack.json"), append(data, '\n'))
}

// ErrHeld means that a stack runs in the folder.
var ErrHeld = errors.New("a stack runs in this folder")

// Lock is held by the process that runs the stack; the kernel releases it when that ends.
type Lock struct{ file *os.File }

// Lock takes the folder, or returns ErrHeld.
func (d Dir) Lock() (*Lock, error) {
	file, err := os.OpenFile(filepath.Join(d.Run(), "lock"), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("lock state folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, errors.Join(fmt.Errorf("lock state folder %s: %w", d, err), file.Close())
	}
	return &Lock{file}, nil
}

// Release gives the folder up.
func (l *Lock) Release() error { return l.file.Close() }

// Process is a process that belongs to the stack.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Started is the kernel's start time of the process; it tells it from a later one with the same id.
	Started string    `json:"started"`
	Since   time.Time `json:"since"`
}

// SetProcess records a process.
func (d Dir) SetProcess(name string, pid int) error {
	started, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("record process %s: %w", name, err)
	}
	data, err := json.Marshal(Process{Name: name, PID: pid, Started: started, Since: time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("record process %s: %w", name, err)
	}
	return Write(d.pidFile(name), append(data, '\n'))
}

// ClearProcess forgets a process that has ended.
func (d Dir) ClearProcess(name string) error {
	if err := os.Remove(d.pidFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget process %s: %w", name, err)
	}
	return nil
}

func (d Dir) pidFile(name string) string { return filepath.Join(d.Run(), name+".pid") }

// Processes are the recorded processes that live, by name.
func (d Dir) Processes() ([]Process, error) {
	files, err := filepath.Glob(d.pidFile("*"))
	if err != nil {
		return nil, fmt.Errorf("processes of the stack: %w", err)
	}
	var out []Process
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("processes of the stack: %w", err)
		}
		var p Process
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("processes of the stack: %s: %w", file, err)
		}
		if p.Alive() {
			out = append(out, p)
		}
	}
	return out, nil
}

// Alive tells whether exactly this process still runs.
func (p Process) Alive() bool {
	started, err := startTime(p.PID)
	return err == nil && started == p.Started
}

// Signal sends a signal to exactly this process.
func (p Process) Signal(signal syscall.Signal) error {
	if !p.Alive() {
		return os.ErrProcessDone
	}
	return syscall.Kill(p.PID, signal)
}

// startTime is field 22 of /proc/PID/stat; the fields are counted after the name, which may hold anything.
// Source: proc_pid_stat(5).
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const state, start = 0, 22 - 3
	if !ok || len(fields) <= start {
		return "", fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if fields[state] == "Z" {
		return "", os.ErrProcessDone
	}
	return fields[start], nil
}
