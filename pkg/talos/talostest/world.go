// SPDX-License-Identifier: Apache-2.0

package talostest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// World is machines at addresses. It is a talos.Dialer and a talos.Prober.
type World struct {
	mu       sync.Mutex
	machines map[netip.Addr]*Machine
	// Before is called before each connection and each probe; an error breaks it.
	Before func() error
}

// NewWorld makes an empty world.
func NewWorld() *World { return &World{machines: map[netip.Addr]*Machine{}} }

// Put places a machine at an address, whatever was there; nil clears the address.
func (w *World) Put(address string, machine *Machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines[netip.MustParseAddr(address)] = machine
}

func (w *World) at(address netip.Addr) (*Machine, State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	machine := w.machines[address]
	if machine == nil || w.Before != nil && w.Before() != nil {
		return nil, State{}
	}
	return machine, machine.Snapshot()
}

// Probe classifies.
func (w *World) Probe(_ context.Context, address netip.Addr) talos.Probe {
	_, state := w.at(address)
	probe := talos.Probe{Address: address, Class: v1alpha1.HostUnreachable, Message: "no answer"}
	switch state.Mode {
	case Maintenance:
		probe.Class, probe.Fingerprint, probe.Message = v1alpha1.HostMaintenance, state.Fingerprint, "Talos in maintenance mode"
	case Configured, Locked:
		probe.Class, probe.Message = v1alpha1.HostAlreadyConfigured, "a configured Talos machine"
	case NotTalos:
		probe.Class, probe.Message = v1alpha1.HostNotTalos, "an SSH server"
	}
	return probe
}

// DialMaintenance connects, if the machine is in maintenance mode and has the fingerprint.
func (w *World) DialMaintenance(_ context.Context, address netip.Addr, pin talos.Fingerprint) (talos.MaintenanceNode, error) {
	machine, state := w.at(address)
	switch {
	case state.Mode != Maintenance:
		return nil, errors.New("no maintenance service answers")
	case pin != "" && pin != state.Fingerprint:
		return nil, &talos.FingerprintError{Address: address.String(), Want: pin, Got: state.Fingerprint}
	}
	return &connection{machine: machine, mode: Maintenance, fingerprint: state.Fingerprint, pinned: pin != "", boot: state.BootID}, nil
}

// DialConfigured connects, if the machine is configured.
func (w *World) DialConfigured(_ context.Context, address netip.Addr, credentials talos.Credentials) (talos.ConfiguredNode, error) {
	machine, state := w.at(address)
	switch state.Mode {
	case Configured:
		machine.Do(func(s *State) { s.Credentials = credentials })
		return &connection{machine: machine, mode: Configured, pinned: true, boot: state.BootID}, nil
	case Off:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
	default:
		return nil, errors.New("nobody lets us in")
	}
}
