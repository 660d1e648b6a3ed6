// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/netip"

	"maesh.dev/ichor/test/hollow/disk"
	"maesh.dev/ichor/test/hollow/pki"
)

// Status is what can be seen of a machine from the outside, and what a test asks for.
type Status struct {
	Name    string     `json:"name"`
	Powered bool       `json:"powered"`
	Address netip.Addr `json:"address"`
	// Stage is Talos' word (maintenance, installing, running, …); "" between boots and without power.
	Stage string `json:"stage,omitempty"`
	// Ready is Talos' readiness in that stage; Unmet says what is missing.
	Ready bool     `json:"ready"`
	Unmet []string `json:"unmet,omitempty"`
	// Listening tells that the Talos API takes connections; Mode is maintenance or configured.
	Listening bool   `json:"listening"`
	Mode      string `json:"mode,omitempty"`
	// Fingerprint is that of the certificate that is presented now, as the console shows it.
	Fingerprint string `json:"fingerprint,omitempty"`
	Version     string `json:"version,omitempty"`
	BootID      string `json:"bootID,omitempty"`
	Hostname    string `json:"hostname,omitempty"`
	// Installed is what the system disk has.
	Installed *disk.Installation `json:"installed,omitempty"`
	// Connections counts accepted TCP connections, Bytes what came over them, since the process started.
	Connections uint64 `json:"connections"`
	Bytes       uint64 `json:"bytes"`
	// Calls counts gRPC calls and their request bytes by method, refused ones too.
	Calls map[string]Calls `json:"calls,omitempty"`
	// Applies is the number of ApplyConfiguration calls that carried a configuration, dry runs included.
	Applies int `json:"applies"`
	// Bootstraps is the number of Bootstrap calls that were accepted since the process started.
	Bootstraps int64 `json:"bootstraps"`
}

// Calls counts the calls of one method.
type Calls struct {
	Count uint64 `json:"count"`
	// RequestBytes are those of the request messages.
	RequestBytes uint64 `json:"requestBytes"`
}

// Modes of the API.
const (
	ModeMaintenance = "maintenance"
	ModeConfigured  = "configured"
)

// Status looks at the machine.
func (n *Node) Status() Status {
	n.mu.Lock()
	s := Status{Name: n.Name(), Powered: n.hardware.Powered, Address: n.hardware.Machine.Addr()}
	b := n.boot
	n.mu.Unlock()
	s.Connections, s.Bytes, s.Calls = n.traffic.snapshot()
	s.Applies = n.applies.count()
	s.Bootstraps = n.bootstraps.Load()
	if installed, err := n.folder.Installed(); err == nil {
		s.Installed = installed
	}
	if b == nil {
		return s
	}
	s.Address = b.address().Addr()
	s.Version, s.BootID = b.slot.Version, b.id
	b.mu.Lock()
	s.Stage, s.Ready = b.status.Stage.String(), b.status.Status.Ready
	for _, unmet := range b.status.Status.UnmetConditions {
		s.Unmet = append(s.Unmet, unmet.Name+": "+unmet.Reason)
	}
	s.Hostname = b.hostname
	b.mu.Unlock()
	s.Listening, s.Mode = b.api.state()
	if certificate := b.api.identity.Certificate(); certificate != nil && s.Listening {
		if fingerprint, err := pki.Fingerprint(certificate); err == nil {
			s.Fingerprint = fingerprint
		}
	}
	return s
}

// WaitFor waits until the condition holds and returns the status it held for.
func (n *Node) WaitFor(ctx context.Context, condition func(Status) bool) (Status, error) {
	for {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		s := n.Status()
		if condition(s) {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("machine %s: still stage %q, mode %q, listening %t, powered %t, unmet %q: %w",
				s.Name, s.Stage, s.Mode, s.Listening, s.Powered, s.Unmet, ctx.Err())
		case <-changed:
		}
	}
}

// InMaintenance is a condition for WaitFor: the API answers without a certificate.
func InMaintenance(s Status) bool {
	return s.Stage == "maintenance" && s.Listening && s.Mode == ModeMaintenance
}

// Running is a condition for WaitFor: the machine is up and ready.
func Running(s Status) bool { return s.Stage == "running" && s.Ready }

// IsOff is a condition for WaitFor: the machine has no power.
func IsOff(s Status) bool { return !s.Powered && s.Stage == "" }

// Applies are the recorded configurations.
func (n *Node) Applies() []Apply { return n.applies.all() }
