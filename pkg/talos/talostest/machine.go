// SPDX-License-Identifier: Apache-2.0

package talostest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// Mode is how a machine answers.
type Mode int

// The modes.
const (
	// Off answers nothing.
	Off Mode = iota
	// Maintenance waits for a configuration.
	Maintenance
	// Configured lets the cluster's clients in.
	Configured
	// Locked is configured and lets nobody in.
	Locked
	// NotTalos is something else.
	NotTalos
)

// Fault is what goes wrong with the next configuration that is sent.
type Fault int

// The faults.
const (
	// NoFault takes the configuration.
	NoFault Fault = iota
	// LoseRequest breaks the connection before the configuration arrives.
	LoseRequest
	// LoseAnswer takes the configuration and breaks the connection.
	LoseAnswer
	// Refuse turns the configuration down.
	Refuse
	// RefuseLive says that the configuration can be taken at a reboot only.
	RefuseLive
	// Busy says that a configuration was applied already.
	Busy
)

// State is what a machine is. Read and change it through Machine.Do.
type State struct {
	Mode        Mode
	Fingerprint talos.Fingerprint
	Facts       talos.Facts
	// Config is the running configuration.
	Config []byte
	// RunningErr is answered to whoever asks for it.
	RunningErr error
	// Applied are the configurations that reached the machine, in order.
	Applied [][]byte
	Fault   Fault
	// Members of etcd, as this machine's etcd lists them.
	Members    []talos.EtcdMember
	Bootstraps int
	// BootstrapErr is answered instead of bootstrapping.
	BootstrapErr error
	Kubeconfig   []byte
	// Shutdowns counts how often the machine was told to power off.
	Shutdowns int
	// Resets counts resets, Ungraceful those of them that left etcd to others.
	Resets, Ungraceful int
	// WipedDisks are the user disks that were wiped.
	WipedDisks []string
	// OnReset is called when the machine is told to wipe itself, before it does.
	OnReset func()
	// LoseReset breaks the connection after the machine was told to wipe itself.
	LoseReset bool
	// ResetErr is answered instead of wiping.
	ResetErr error
	// Watches counts the watches of the configuration that run; WatchErr ends them.
	Watches  int
	WatchErr error
	// Live machines take a configuration without leaving their mode, as running ones do.
	Live bool
	// Unreadable machines let the cluster's clients in and answer nothing, as busy ones do.
	Unreadable bool
	// OnApply is called when a configuration has arrived, before the answer is sent.
	OnApply func()
	// Survey is what the machine says of itself.
	Survey talos.Survey
	// Etcd is the member that runs here; nil if none does. NoQuorum keeps it from answering what takes a quorum.
	Etcd     *talos.EtcdStatus
	NoQuorum bool
	Alarms   []talos.EtcdAlarm
	// Database is what a snapshot holds; SnapshotErr ends it before its end.
	Database    []byte
	SnapshotErr error
	// BootID is the boot that the machine is in; a connection ends with its boot.
	BootID string
	// Reboots counts how often the machine was told to reboot; OnReboot is called then, and does what comes of it.
	// RebootErr is answered instead.
	Reboots   int
	OnReboot  func(*State)
	RebootErr error
	// Staged is the configuration for the next boot.
	Staged []byte
	// Images are those that the machine has, Pulls how often it pulled one, PullErr what a pull is answered with instead.
	Images  map[string]bool
	Pulls   int
	PullErr error
	// Legacy machines have no LifecycleService.
	Legacy bool
	// Installs counts the runs of an installer; InstallExit and InstallErr are how they end. LoseInstall loses the answer.
	Installs    int
	InstallExit int32
	InstallErr  error
	LoseInstall bool
	// InstallerRuns says that one runs; Trace is what the kernel log tells of the last one.
	InstallerRuns bool
	Trace         talos.InstallerTrace
	// Installed is the image that boots next; empty if it is the one that runs.
	Installed string
	// Logs are what its services have logged, the kernel under the empty name. A log that is followed goes on for as long as
	// its reader reads.
	Logs map[string]string
	// Credentials are those of the latest connection.
	Credentials talos.Credentials
}

// Machine is one scripted machine.
type Machine struct {
	mu    sync.Mutex
	state State
}

// NewMachine makes a machine.
func NewMachine(state State) *Machine { return &Machine{state: state} }

// Do reads or changes the machine.
func (m *Machine) Do(f func(*State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.state)
}

// Snapshot is a copy of what the machine is; its slices must not be changed.
func (m *Machine) Snapshot() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

var errGone = errors.New("the connection broke")

// connection is one connection to a machine; it breaks when the machine leaves the mode in which it was made.
type connection struct {
	machine     *Machine
	mode        Mode
	fingerprint talos.Fingerprint
	pinned      bool
	boot        string
}

func (c *connection) do(f func(*State) error) error {
	var err error
	c.machine.Do(func(s *State) {
		if s.Mode != c.mode || c.mode == Maintenance && s.Fingerprint != c.fingerprint || s.BootID != c.boot {
			err = errGone
			return
		}
		if s.Unreadable {
			err = errors.New("DeadlineExceeded: the machine doesn't answer in time")
			return
		}
		err = f(s)
	})
	return err
}

func (c *connection) Close() error { return nil }

func (c *connection) Fingerprint() talos.Fingerprint { return c.fingerprint }

func (c *connection) Facts(context.Context) (*talos.Facts, error) {
	var facts talos.Facts
	err := c.do(func(s *State) error { facts = s.Facts; return nil })
	if err != nil {
		return nil, err
	}
	return &facts, nil
}

func (c *connection) Identity(context.Context) (v1alpha1.MachineIdentity, error) {
	var id v1alpha1.MachineIdentity
	err := c.do(func(s *State) error { id = s.Facts.Identity; return nil })
	return id, err
}

func (c *connection) Stage(context.Context) (talos.MachineStage, error) {
	var stage talos.MachineStage
	err := c.do(func(s *State) error { stage = s.Facts.Stage; return nil })
	return stage, err
}

func (c *connection) ApplyConfiguration(_ context.Context, config []byte, mode talos.ApplyMode) (talos.ApplyResult, error) {
	if !c.pinned {
		return talos.ApplyResult{}, &talos.ApplyError{Err: errors.New("the machine's certificate was not compared with a fingerprint")}
	}
	var arrived func()
	err := c.do(func(s *State) error {
		switch s.Fault {
		case LoseRequest:
			return &talos.ApplyError{Err: errGone}
		case Refuse:
			return &talos.ApplyError{Delivered: true, Err: errors.New("InvalidArgument: no such thing")}
		case RefuseLive:
			return &talos.ApplyError{Delivered: true, Err: errors.New("InvalidArgument: this config change can't be applied in immediate mode")}
		case Busy:
			return &talos.ApplyError{Delivered: true, Err: errors.New("FailedPrecondition: configuration was already applied")}
		}
		if mode == talos.ApplyStaged {
			s.Staged = config
			return nil
		}
		s.Applied = append(s.Applied, config)
		s.Config = config
		if !s.Live {
			s.Mode = Configured
			s.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageBooting}
		}
		arrived = s.OnApply
		if s.Fault == LoseAnswer {
			return &talos.ApplyError{Delivered: true, MaybeDelivered: true, Err: errGone}
		}
		return nil
	})
	if arrived != nil {
		arrived()
	}
	if err == errGone {
		err = &talos.ApplyError{Err: err}
	}
	return talos.ApplyResult{}, err
}

func (c *connection) RunningConfiguration(context.Context) ([]byte, error) {
	var config []byte
	err := c.do(func(s *State) error { config = s.Config; return s.RunningErr })
	return config, err
}

// watchEvery is how often a scripted machine looks whether it was changed by its test.
const watchEvery = 5 * time.Millisecond

// WatchConfiguration reports what the machine runs until the connection breaks.
func (c *connection) WatchConfiguration(ctx context.Context, changed func(hash string)) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	c.machine.Do(func(s *State) { s.Watches++ })
	defer c.machine.Do(func(s *State) { s.Watches-- })
	last := ""
	for {
		var config []byte
		if err := c.do(func(s *State) error { config = s.Config; return s.WatchErr }); err != nil {
			return err
		}
		sum := sha256.Sum256(config)
		if hash := hex.EncodeToString(sum[:]); hash != last {
			last = hash
			changed(hash)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (c *connection) Bootstrap(context.Context) error {
	return c.do(func(s *State) error {
		if s.BootstrapErr != nil {
			return s.BootstrapErr
		}
		s.Bootstraps++
		s.Members = []talos.EtcdMember{{ID: 0x1a, Hostname: s.Facts.Hostname}}
		return nil
	})
}

// EtcdRemoveMember removes a member from the list of this machine's etcd.
func (c *connection) EtcdRemoveMember(_ context.Context, id uint64) error {
	return c.do(func(s *State) error {
		if len(s.Members) == 0 {
			return errors.New("etcd is not running")
		}
		s.Members = slices.DeleteFunc(slices.Clone(s.Members), func(member talos.EtcdMember) bool { return member.ID == id })
		return nil
	})
}

func (c *connection) Kubeconfig(context.Context) ([]byte, error) {
	var kubeconfig []byte
	err := c.do(func(s *State) error {
		if len(s.Kubeconfig) == 0 {
			return errors.New("not yet")
		}
		kubeconfig = s.Kubeconfig
		return nil
	})
	return kubeconfig, err
}

// Reset wipes the machine.
func (c *connection) Reset(_ context.Context, options talos.ResetOptions) error {
	if told := c.machine.Snapshot().OnReset; told != nil {
		told()
	}
	return c.do(func(s *State) error {
		if s.ResetErr != nil {
			return s.ResetErr
		}
		s.Resets++
		s.WipedDisks = append(s.WipedDisks, options.UserDisks...)
		if !options.Graceful {
			s.Ungraceful++
		}
		s.Mode, s.Config = Maintenance, nil
		s.Fingerprint = talos.Fingerprint(fmt.Sprintf("after-reset-%d", s.Resets))
		s.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true}
		s.Facts.SystemDisk = nil
		if s.LoseReset {
			return status.Error(codes.Unavailable, errGone.Error())
		}
		return nil
	})
}
