// SPDX-License-Identifier: Apache-2.0

// Package host runs a whole fleet of hollow machines in one process.
package host

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/workload"
)

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

// Start makes all machines and switches on those that are to be on. On an error nothing runs.
func Start(o Options) (*Host, error) {
	h := &Host{nodes: map[string]*node.Node{}}
	discovery := &node.Discovery{}
	for _, m := range o.Fleet.Machines {
		options := node.Options{Machine: m, Dir: o.Dir, Discovery: discovery, Log: o.Log}
		if o.Workload != nil {
			factory, err := o.Workload(m)
			if err != nil {
				h.Close()
				return nil, fmt.Errorf("machine %s: %w", m.Name, err)
			}
			options.Workload = factory
		}
		n, err := node.New(options)
		if err != nil {
			h.Close()
			return nil, err
		}
		h.names = append(h.names, m.Name)
		h.nodes[m.Name] = n
	}
	for _, name := range h.names {
		if err := h.nodes[name].Start(); err != nil {
			h.Close()
			return nil, err
		}
	}
	return h, nil
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
func (h *Host) Names() []string { return h.names }

// Close ends all machines side by side and returns when everything they ran has ended.
func (h *Host) Close() {
	var all sync.WaitGroup
	for _, n := range h.nodes {
		all.Add(1)
		go func() {
			defer all.Done()
			n.Close()
		}()
	}
	all.Wait()
}
