// SPDX-License-Identifier: Apache-2.0

package operations

import "time"

// The acts of a machine, as its own log has them. Told are those that Ichor asked for.
const (
	ActBoot         = "boot"
	ActInstaller    = "installer"
	ActToldReboot   = "told-reboot"
	ActToldShutdown = "told-shutdown"
	ActToldUpgrade  = "told-upgrade"
)

// Act is one thing that a machine did or was told.
type Act struct {
	At      time.Time
	Machine string
	What    string
}

// Span is a time during which something was so. A zero To has no end.
type Span struct {
	Machine  string
	From, To time.Time
}

// holds tells whether a time is in the span.
func (s Span) holds(at time.Time) bool {
	return !at.Before(s.From) && (s.To.IsZero() || at.Before(s.To))
}

// Fault is something that was done to the cluster, or asked of an operation.
type Fault struct {
	What string
	Span
	// Explains are words of which one is in the message of an operation that stopped because of it. A fault without any stops
	// no operation.
	Explains []string
}

// Work is the time in which an operation worked on a machine.
type Work struct {
	Span
	// Allowed is how often the machine may have been told: once, and once more for each time that somebody had the step tried
	// again.
	Allowed int
}

// Pause is a stop of an operation.
type Pause struct {
	At time.Time
	// Machine and Message are what the operation says.
	Machine, Message string
}

// Operation is one operation from its making to its end.
type Operation struct {
	Name, Kind string
	// Phase is the last one; Message is what went with it.
	Phase, Message string
	Work           []Work
	Pauses         []Pause
	// CancelAsked tells that somebody cancelled it.
	CancelAsked bool
}

// Process is a controller as it is at a time.
type Process struct {
	// Started tells two processes apart.
	Started            float64
	Goroutines, HeapMB float64
}

// Left is what is there when all operations have ended.
type Left struct {
	// Claims are clusters that an operation holds; Cordons are Nodes that carry an operation's mark or are unschedulable.
	Claims, Cordons []string
	// Plain are files of snapshots that aren't encrypted; Jobs are Jobs of gates; Staged are machines that a configuration waits
	// in that nobody wants any more.
	Plain, Jobs, Staged []string
	// Before and After are a controller before the first operation and after the last.
	Before, After Process
	// LostLead tells that this controller's log says that it ended because it couldn't renew its Lease, as it is to.
	LostLead bool
}

// History is all that is judged.
type History struct {
	// ControlPlanes are the machines with a member of etcd.
	ControlPlanes []string
	Acts          []Act
	// Missed are the times at which a member of etcd was no healthy voter, by its own log.
	Missed     []Span
	Operations []Operation
	Faults     []Fault
	Left       Left
}
