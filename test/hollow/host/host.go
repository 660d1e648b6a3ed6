// SPDX-License-Identifier: Apache-2.0

// Package host runs a whole fleet of hollow machines in one process.
package host

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/workload"
)

// startAtOnce bounds how many machines are made at the same time: each reads and writes files of its folder.
const startAtOnce = 16

// Options say how to host a fleet.
type Options struct {
	Fleet *fleet.Fleet
	// Dir takes one folder per machine.
	Dir string
	// Workload gives the factory for a machine (its CNI setting may matter); nil runs no Kubernetes.
	Workload func(fleet.Machine) (workload.Factory, error)
	// Log takes what happens; nil discards it.
	Log *slog.Logger
}

// Host are the machines of a fleet. Close switches them all off, as a power cut that they don't remember.
type Host struct {
	names []string
	nodes map[string]*node.Node
}

// Start makes all machines and switches on those that are to be on. On an error nothing runs. It doesn't wait until the
// machines listen.
func Start(o Options) (*Host, error) {
	if err := o.Fleet.Validate(); err != nil {
		return nil, fmt.Errorf("host fleet: %w", err)
	}
	h := &Host{nodes: make(map[string]*node.Node, len(o.Fleet.Machines))}
	discovery := &node.Discovery{}
	nodes := make([]*node.Node, len(o.Fleet.Machines))
	faults := make([]error, len(o.Fleet.Machines))
	work := make(chan int)
	var workers sync.WaitGroup
	for range min(startAtOnce, len(nodes)) {
		workers.Go(func() {
			for i := range work {
				nodes[i], faults[i] = start(o, o.Fleet.Machines[i], discovery)
			}
		})
	}
	for i := range nodes {
		work <- i
	}
	close(work)
	workers.Wait()
	for i, n := range nodes {
		if n != nil {
			h.names = append(h.names, o.Fleet.Machines[i].Name)
			h.nodes[n.Name()] = n
		}
	}
	if err := errors.Join(faults...); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// start makes one machine and switches it on; with an error it is off.
func start(o Options, m fleet.Machine, discovery *node.Discovery) (*node.Node, error) {
	options := node.Options{Machine: m, Dir: o.Dir, Discovery: discovery, Log: o.Log}
	if o.Workload != nil {
		factory, err := o.Workload(m)
		if err != nil {
			return nil, fmt.Errorf("machine %s: %w", m.Name, err)
		}
		options.Workload = factory
	}
	n, err := node.New(options)
	if err != nil {
		return nil, err
	}
	if err := n.Start(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// ErrUnknown tells that no machine has the name.
var ErrUnknown = errors.New("no such machine")

// Node finds a machine by its name.
func (h *Host) Node(name string) (*node.Node, error) {
	n, ok := h.nodes[name]
	if !ok {
		return nil, fmt.Errorf("%q: %w", name, ErrUnknown)
	}
	return n, nil
}

// Names are the machines' names in the order of the fleet.
func (h *Host) Names() []string { return slices.Clone(h.names) }

// Close ends all machines side by side and returns when everything they ran has ended. Nobody may switch a machine on
// afterwards.
func (h *Host) Close() {
	var all sync.WaitGroup
	for _, n := range h.nodes {
		all.Go(n.Close)
	}
	all.Wait()
}
