// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// DialOptions bound what a dialer does. The zero value of each means its default.
type DialOptions struct {
	// ConnectTimeout bounds connecting, the TLS handshake and the first answer together. Default 10s.
	ConnectTimeout time.Duration
	// ReadTimeout bounds each call that reads. Default 20s.
	ReadTimeout time.Duration
	// WriteTimeout bounds each call that changes the machine. Default 60s.
	WriteTimeout time.Duration
	// Port of the Talos API. Default Port.
	Port uint16
}

func (o DialOptions) withDefaults() DialOptions {
	return DialOptions{
		ConnectTimeout: cmp.Or(o.ConnectTimeout, 10*time.Second),
		ReadTimeout:    cmp.Or(o.ReadTimeout, 20*time.Second),
		WriteTimeout:   cmp.Or(o.WriteTimeout, time.Minute),
		Port:           cmp.Or(o.Port, Port),
	}
}

// NewDialer returns the dialer for real nodes.
func NewDialer(options DialOptions) Dialer { return dialer{options.withDefaults()} }

type dialer struct{ options DialOptions }

func (d dialer) DialMaintenance(ctx context.Context, address netip.Addr, pin Fingerprint) (MaintenanceNode, error) {
	address = address.Unmap()
	ctx, cancel := context.WithTimeout(ctx, d.options.ConnectTimeout)
	defer cancel()
	channel, err := openChannel(ctx, address, d.options.Port, maintenanceTLS(address, pin), maintenanceBudget)
	var mismatch *FingerprintError
	if errors.As(err, &mismatch) {
		return nil, mismatch
	}
	if err != nil {
		return nil, &CallError{Address: address, What: "connection to the maintenance service", Err: err}
	}
	return newNode(channel, d.options, pin != ""), nil
}

func (d dialer) DialConfigured(ctx context.Context, address netip.Addr, credentials Credentials) (ConfiguredNode, error) {
	address = address.Unmap()
	config, err := configuredTLS(address, credentials)
	if err != nil {
		return nil, &CallError{Address: address, What: "connection to the Talos API", Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, d.options.ConnectTimeout)
	defer cancel()
	channel, err := openChannel(ctx, address, d.options.Port, config, configuredBudget)
	if err != nil {
		return nil, &CallError{Address: address, What: "connection to the Talos API", Err: err}
	}
	return newNode(channel, d.options, true), nil
}

// node is a machine over one connection, in either mode: the API is the same, the machine's rules differ.
type node struct {
	channel  *channel
	options  DialOptions
	machine  machineapi.MachineServiceClient
	reader   reader
	verified bool // the peer's certificate was verified, so that writing is allowed
}

func newNode(channel *channel, options DialOptions, verified bool) *node {
	return &node{
		channel:  channel,
		options:  options,
		machine:  machineapi.NewMachineServiceClient(channel),
		reader:   reader{cosi.NewStateClient(channel)},
		verified: verified,
	}
}

func (n *node) Close() error { return n.channel.Close() }

func (n *node) Fingerprint() Fingerprint { return n.channel.leaf }

func (n *node) Facts(ctx context.Context) (*Facts, error) {
	return read(ctx, n, "reading the facts", func(ctx context.Context) (*Facts, error) {
		seen, err := observe(ctx, n.reader)
		if err != nil {
			return nil, err
		}
		return seen.facts(n.channel.address), nil
	})
}

func (n *node) Identity(ctx context.Context) (v1alpha1.MachineIdentity, error) {
	return read(ctx, n, "reading the identity", func(ctx context.Context) (v1alpha1.MachineIdentity, error) {
		seen, err := observeIdentity(ctx, n.reader)
		return seen.identity(), err
	})
}

func (n *node) Stage(ctx context.Context) (MachineStage, error) {
	return read(ctx, n, "reading the stage", func(ctx context.Context) (MachineStage, error) {
		return observeStage(ctx, n.reader)
	})
}

// read runs a call that reads, within its deadline.
func read[T any](ctx context.Context, n *node, what string, call func(context.Context) (T, error)) (T, error) {
	return within(ctx, n, n.options.ReadTimeout, what, call)
}

func within[T any](ctx context.Context, n *node, timeout time.Duration, what string, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := call(ctx)
	if err != nil {
		var none T
		return none, &CallError{Address: n.channel.address, What: what, Err: err}
	}
	return out, nil
}
