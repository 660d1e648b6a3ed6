// SPDX-License-Identifier: Apache-2.0

// Package talos is the one place that speaks to Talos nodes. It classifies what answers at an address, reads who a
// machine is and what it has, and carries out the few calls that change a node. It decides nothing: controllers and
// pkg/bootstrap do, over the small interfaces of this file.
package talos

import (
	"context"
	"io"
	"net/netip"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Port is the TCP port of the Talos API. Source: Talos, pkg/machinery/constants.ApidPort.
const Port = 50000

// Fingerprint is the base64 of the SHA-256 of a certificate's SubjectPublicKeyInfo, as the machine's console and
// talosctl --cert-fingerprint show it.
type Fingerprint string

// Probe is what answered at an address, learnt without sending a request.
type Probe struct {
	Address netip.Addr
	// Class is Maintenance, AlreadyConfigured, NotTalos or Unreachable.
	Class v1alpha1.HostClass
	// Fingerprint of the leaf certificate; empty unless the class is Maintenance or AlreadyConfigured.
	Fingerprint Fingerprint
	// Message says in words what answered, for people.
	Message string
}

// Prober classifies addresses. Each call is bounded by its own deadline, whatever the peer does, and leaves no goroutine.
type Prober interface {
	Probe(ctx context.Context, address netip.Addr) Probe
}

// Facts is what a machine says of itself.
type Facts struct {
	// Identity is normalised: lower case, sorted, permanent addresses of physical links only. Junk UUIDs are reported as
	// they are; judging them is the caller's part.
	Identity v1alpha1.MachineIdentity
	// Inventory is nil only if the machine has not read its hardware yet.
	Inventory *v1alpha1.MachineInventory
	// FirmwareRead is false while the machine has not published its SMBIOS tables, which UUID and serial number come
	// from. A machine without such tables never does.
	FirmwareRead bool
	// Addresses are the machine's own unicast addresses, the dialled one first.
	Addresses    []string
	Hostname     string
	TalosVersion string
	SchematicID  string
	Stage        MachineStage
	// SystemDisk is nil while Talos isn't installed on a disk.
	SystemDisk *v1alpha1.SystemDisk
	// NodeName is the Kubernetes Node's name; empty while there is none.
	NodeName string
}

// MachineStage is Talos' own summary.
type MachineStage struct {
	Stage v1alpha1.MachineStage
	// Ready means nothing unless Stage is running.
	Ready bool
	// Unmet are the conditions that keep the machine from being ready, "name: reason".
	Unmet []string
}

// ApplyMode is the mode of ApplyConfiguration. The zero value is refused: Talos would reboot.
type ApplyMode int

// The modes that Ichor uses.
const (
	ApplyAuto ApplyMode = iota + 1
	ApplyNoReboot
	ApplyStaged
)

// ApplyResult is a machine's answer to a configuration. It proves that the call was accepted, not that it took effect.
type ApplyResult struct {
	// Rebooting is true when the node chose to reboot.
	Rebooting bool
	Warnings  []string
	// Details in Talos' words, without the difference of the configurations that Talos may append.
	Details string
}

// EtcdMember is a member of etcd as the node's etcd lists it.
type EtcdMember struct {
	ID       uint64
	Hostname string
	PeerURLs []string
	Learner  bool
}

// MaintenanceNode is a machine in maintenance mode, over one connection that was verified against a pin.
type MaintenanceNode interface {
	io.Closer
	// Fingerprint of the certificate that this connection was made with.
	Fingerprint() Fingerprint
	// Facts reads the machine; everything Ichor shows about it.
	Facts(ctx context.Context) (*Facts, error)
	// Identity reads on this very connection who the machine is; called before every write.
	Identity(ctx context.Context) (v1alpha1.MachineIdentity, error)
	Stage(ctx context.Context) (MachineStage, error)
	// ApplyConfiguration sends a configuration. It returns *ApplyError, which tells whether the request can have reached
	// the machine.
	ApplyConfiguration(ctx context.Context, config []byte, mode ApplyMode) (ApplyResult, error)
}

// ConfiguredNode is a configured machine, over mutual TLS with the cluster's own certificate authority.
type ConfiguredNode interface {
	MaintenanceNode
	EtcdReader
	// Survey reads what there is to know of a machine when Kubernetes can't be asked. It needs os:reader.
	Survey(ctx context.Context) (*Survey, error)
	// RunningConfiguration returns the exact bytes that the machine runs. They hold secrets.
	RunningConfiguration(ctx context.Context) ([]byte, error)
	// WatchConfiguration reports the SHA-256, in hexadecimal, of the configuration that the machine runs, and of each that it
	// runs from then on. It returns once the connection is lost, the machine ends the watch, or ctx ends; never without an
	// error.
	WatchConfiguration(ctx context.Context, changed func(hash string)) error
	// BootID changes at each boot.
	BootID(ctx context.Context) (string, error)
	// Bootstrap starts etcd with this node as its first member. Only pkg/bootstrap may call it.
	Bootstrap(ctx context.Context) error
	// EtcdRemoveMember lets the node's etcd remove another member. A member that is gone is no error.
	EtcdRemoveMember(ctx context.Context, id uint64) error
	// Kubeconfig returns an admin kubeconfig.
	Kubeconfig(ctx context.Context) ([]byte, error)
}

// Dialer opens connections to nodes.
type Dialer interface {
	// DialMaintenance connects to a machine in maintenance mode. The handshake fails with *FingerprintError, before a
	// byte of any request is sent, unless the leaf has the given fingerprint; an empty pin accepts any leaf and is for
	// reading only: ApplyConfiguration on such a connection is refused locally.
	DialMaintenance(ctx context.Context, address netip.Addr, pin Fingerprint) (MaintenanceNode, error)
	// DialConfigured connects with a client certificate of the cluster and verifies the node's certificate against the
	// cluster's Talos certificate authority.
	DialConfigured(ctx context.Context, address netip.Addr, credentials Credentials) (ConfiguredNode, error)
}

// Credentials give access to the configured nodes of one cluster. They live in memory only.
type Credentials struct {
	// CA is the PEM of the Talos certificate authorities that nodes are verified against.
	CA []byte
	// Certificate and Key are the PEM of the client certificate.
	Certificate, Key []byte
	// NotAfter is when the certificate ends.
	NotAfter time.Time
}
