// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/timestamppb"

	"maesh.dev/ichor/test/hollow/facts"
	"maesh.dev/ichor/test/hollow/workload"
)

// service is one of Talos' services with what ServiceList tells of it.
type service struct {
	id      string
	state   string
	message string
	health  string
	running bool
	healthy bool
	unknown bool
	pid     int32
	since   time.Time
	events  []*machine.ServiceEvent
}

// maxServiceEvents is how many events of a service Talos keeps.
const maxServiceEvents = 8

// States of a service as Talos words them.
const (
	stateRunning  = "Running"
	stateFinished = "Finished"
)

// earlyServices run on a metal machine before there is a configuration.
var earlyServices = []string{"udevd", "machined", "apid", "auditd", "syslogd", "containerd", "dashboard"}

// startService makes one of the node's own services running and healthy.
func (b *boot) startService(ctx context.Context, id string) {
	b.mu.Lock()
	pid := int32(100 + len(b.services))
	b.mu.Unlock()
	if id == "machined" {
		pid = 1
	}
	// apid is healthy once it listens.
	healthy := id != "apid"
	b.setService(ctx, service{id: id, state: stateRunning, message: "Started task " + id, health: "OK", running: true, healthy: healthy, pid: pid})
}

// apidHealth tells whether apid answers its health check, which is a connection to its own port.
func (b *boot) apidHealth(listening bool) {
	b.mu.Lock()
	s, known := b.services["apid"]
	s.healthy, s.health = listening, "OK"
	if !listening {
		s.health = "dial tcp 127.0.0.1:50000: connect: connection refused"
	}
	if known {
		b.services["apid"] = s
	}
	b.mu.Unlock()
	b.refresh()
}

// stopServices ends the services of a kind; Talos destroys their resources.
func (b *boot) stopServices(ctx context.Context, ids ...string) {
	for _, id := range ids {
		b.mu.Lock()
		current, known := b.services[id]
		b.mu.Unlock()
		if known && current.running {
			b.setService(ctx, service{id: id, state: stateFinished, message: "Service finished successfully"})
		}
	}
}

// setService records a service's state; a change is an event.
func (b *boot) setService(ctx context.Context, s service) {
	b.mu.Lock()
	old := b.services[s.id]
	s.since, s.events = old.since, old.events
	stateChanged := old.state != s.state || old.message != s.message
	if stateChanged {
		s.since = time.Now()
		s.events = append(slices.Clone(s.events), &machine.ServiceEvent{Msg: s.message, State: s.state, Ts: timestamppb.New(s.since)})
		if len(s.events) > maxServiceEvents {
			s.events = s.events[len(s.events)-maxServiceEvents:]
		}
	}
	b.services[s.id] = s
	b.mu.Unlock()
	if stateChanged {
		b.ring.Publish(ctx, &machine.ServiceStateEvent{
			Service: s.id, Message: s.message, Action: serviceActions[s.state], Health: s.healthProto(),
		})
	}
}

var serviceActions = map[string]machine.ServiceStateEvent_Action{
	"Initialized": machine.ServiceStateEvent_INITIALIZED,
	"Preparing":   machine.ServiceStateEvent_PREPARING,
	"Waiting":     machine.ServiceStateEvent_WAITING,
	stateRunning:  machine.ServiceStateEvent_RUNNING,
	"Stopping":    machine.ServiceStateEvent_STOPPING,
	stateFinished: machine.ServiceStateEvent_FINISHED,
	"Failed":      machine.ServiceStateEvent_FAILED,
	"Skipped":     machine.ServiceStateEvent_SKIPPED,
	"Starting":    machine.ServiceStateEvent_STARTING,
}

func (s service) healthProto() *machine.ServiceHealth {
	return &machine.ServiceHealth{Unknown: s.unknown, Healthy: s.healthy, LastMessage: s.health, LastChange: timestamppb.New(s.since)}
}

func (s service) proto() *machine.ServiceInfo {
	return &machine.ServiceInfo{Id: s.id, State: s.state, Events: &machine.ServiceEvents{Events: s.events}, Health: s.healthProto()}
}

// serviceList are all services that were ever loaded, by name.
func (b *boot) serviceList() []*machine.ServiceInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*machine.ServiceInfo
	for _, s := range b.services {
		list = append(list, s.proto())
	}
	slices.SortFunc(list, func(x, y *machine.ServiceInfo) int { return strings.Compare(x.GetId(), y.GetId()) })
	return list
}

// visibleServices are those with a resource, which only running ones have; it needs mu.
func (b *boot) visibleServices() []facts.Service {
	var list []facts.Service
	for _, s := range b.services {
		if s.running {
			list = append(list, facts.Service{ID: s.id, Running: true, Healthy: s.healthy, Unknown: s.unknown, PID: s.pid})
		}
	}
	slices.SortFunc(list, func(x, y facts.Service) int { return strings.Compare(x.ID, y.ID) })
	return list
}

// workloadChanged takes the workload's picture of itself.
func (b *boot) workloadChanged(s workload.Status) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.workload = s
	b.mu.Unlock()
	for _, w := range s.Services {
		next := service{id: w.ID, state: w.State, message: w.Message, running: w.Running, healthy: w.Healthy, unknown: w.Unknown}
		if w.Running && w.Healthy {
			next.health = "OK"
		}
		b.setService(b.ctx, next)
	}
	b.refresh()
}

// servicesUp tells whether every service that the machine needs to have booted is up, with what it still waits for.
func servicesUp(v facts.View) bool { return serviceProblems(v) == "" }
