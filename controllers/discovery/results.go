// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// maxHosts is how many odd hosts a status lists.
const maxHosts = 256

// finding is what one address turned out to be.
type finding struct {
	class v1alpha1.HostClass
	// odd is set where a person should hear of the address, with words.
	odd string
	// machine is the object that the address belongs to; empty if there is none.
	machine string
	// unread is true for a machine in maintenance mode that told too little to be entered.
	unread bool
}

// results gather what a scan finds. Addresses finish in any order; the cursor is the first that hasn't, so that a scan
// that was cut off carries on without a gap.
type results struct {
	plan plan
	// first is where this run began; addresses before it were looked at by an earlier one, which found before.
	first  int
	before v1alpha1.DiscoveryStatus

	mu     sync.Mutex
	looks  []look          // by index
	notes  map[int]finding // by index, of what is more than silent
	cursor int
	order  []int32         // indexes in the order of their addresses
	seen   map[string]bool // objects of machines that answered
}

// look is what came of looking at an address. Nearly all of a large network are silent, and take a byte each.
type look uint8

const (
	notYet look = iota
	silent
	noted
)

// newResults begins a scan, at the cursor of a status if that can be carried on.
func newResults(p plan, resume *v1alpha1.DiscoveryStatus) *results {
	r := &results{plan: p, looks: make([]look, len(p.addresses)), notes: map[int]finding{}, order: make([]int32, len(p.addresses)), seen: map[string]bool{}}
	for i := range r.order {
		r.order[i] = int32(i)
	}
	slices.SortFunc(r.order, func(a, b int32) int { return p.addresses[a].Compare(p.addresses[b]) })
	if resume == nil {
		return r
	}
	address, err := netip.ParseAddr(resume.Cursor)
	at, known := r.indexOf(address)
	if err == nil && known && int(resume.Total) == len(p.addresses) && int(resume.Done) == at {
		r.first, r.cursor, r.before = at, at, *resume
	}
	return r
}

// indexOf finds an address of the plan.
func (r *results) indexOf(address netip.Addr) (int, bool) {
	at, found := slices.BinarySearchFunc(r.order, address, func(i int32, address netip.Addr) int { return r.plan.addresses[i].Compare(address) })
	if !found {
		return 0, false
	}
	return int(r.order[at]), true
}

// add notes what was found at the i-th address.
func (r *results) add(i int, found finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks[i] = silent
	if found != (finding{class: v1alpha1.HostUnreachable}) {
		r.looks[i], r.notes[i] = noted, found
	}
	for r.cursor < len(r.looks) && r.looks[r.cursor] != notYet {
		r.cursor++
	}
	if found.machine != "" {
		r.seen[found.machine] = true
	}
}

// notMachine is the finding at an address where there is no Talos machine.
func (r *results) notMachine(probe talos.Probe) finding {
	if probe.Class == v1alpha1.HostNotTalos {
		return finding{class: probe.Class, odd: probe.Message}
	}
	found := finding{class: v1alpha1.HostUnreachable}
	if r.plan.explicit[probe.Address] {
		found.odd = probe.Message
	}
	return found
}

// at is what this run found at an address; nothing if it didn't look there. The lock is held.
func (r *results) at(text string) finding {
	address, err := netip.ParseAddr(text)
	if i, planned := r.indexOf(address); err == nil && planned {
		return r.found(i)
	}
	return finding{}
}

// found is what this run found at the i-th address. The lock is held.
func (r *results) found(i int) finding {
	switch r.looks[i] {
	case silent:
		return finding{class: v1alpha1.HostUnreachable}
	case noted:
		return r.notes[i]
	default:
		return finding{}
	}
}

// missing tells whether a machine ought to have been met in this run, and wasn't.
func (r *results) missing(m *v1alpha1.TalosMachine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[m.Name] || len(m.Status.Addresses) == 0 {
		return false
	}
	if slices.ContainsFunc(m.Status.Addresses, func(text string) bool { return r.at(text).unread }) {
		return false
	}
	return r.first == 0 || r.at(m.Status.Addresses[0]).class != ""
}

// left is the number of addresses that this run is to look at.
func (r *results) left() int { return len(r.plan.addresses) - r.first }

// unread are the addresses of machines that told too little.
func (r *results) unread() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []netip.Addr
	for i, found := range r.notes {
		if found.unread {
			out = append(out, r.plan.addresses[i])
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// progress writes how far the scan got: what was found before the cursor, where it can be carried on. What is beyond is
// looked at again, so it doesn't count.
func (r *results) progress(status *v1alpha1.DiscoveryStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(status)
	status.Phase = v1alpha1.DiscoveryScanning
	status.Cursor = ""
	if r.cursor < len(r.plan.addresses) {
		status.Cursor = r.plan.addresses[r.cursor].String()
	}
}

// finish writes the outcome.
func (r *results) finish(status *v1alpha1.DiscoveryStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(status)
	status.Phase = v1alpha1.DiscoveryIdle
	status.Cursor = ""
}

func (r *results) write(status *v1alpha1.DiscoveryStatus) {
	counts := map[v1alpha1.HostClass]int32{}
	hosts := slices.Clone(r.before.Hosts)
	for i := r.first; i < r.cursor; i++ {
		found := r.found(i)
		counts[found.class]++
		if found.odd != "" {
			hosts = append(hosts, v1alpha1.DiscoveredHost{Address: r.plan.addresses[i].String(), Class: found.class, Message: found.odd})
		}
	}
	status.Total = int32(len(r.plan.addresses))
	status.Done = int32(r.cursor)
	status.Maintenance = r.before.Maintenance + counts[v1alpha1.HostMaintenance]
	status.AlreadyConfigured = r.before.AlreadyConfigured + counts[v1alpha1.HostAlreadyConfigured] + counts[v1alpha1.HostOursUnknown] + counts[v1alpha1.HostQuarantined]
	status.NotTalos = r.before.NotTalos + counts[v1alpha1.HostNotTalos]
	status.Unreachable = r.before.Unreachable + counts[v1alpha1.HostUnreachable]
	status.Hosts = listed(hosts)
}

// urgency orders classes by how much a person should hear of them, for when not all fit.
var urgency = map[v1alpha1.HostClass]int{
	v1alpha1.HostMaintenance: 0, v1alpha1.HostQuarantined: 1, v1alpha1.HostOursUnknown: 2, v1alpha1.HostUnreachable: 3, v1alpha1.HostAlreadyConfigured: 4, v1alpha1.HostNotTalos: 5,
}

// listed are the hosts that a status has room for, by address.
func listed(hosts []v1alpha1.DiscoveredHost) []v1alpha1.DiscoveredHost {
	if len(hosts) == 0 {
		return nil
	}
	hosts = slices.Clone(hosts)
	byAddress := func(a, b v1alpha1.DiscoveredHost) int {
		x, _ := netip.ParseAddr(a.Address)
		y, _ := netip.ParseAddr(b.Address)
		return x.Compare(y)
	}
	slices.SortFunc(hosts, func(a, b v1alpha1.DiscoveredHost) int {
		return cmp.Or(cmp.Compare(urgency[a.Class], urgency[b.Class]), byAddress(a, b))
	})
	hosts = hosts[:min(len(hosts), maxHosts)]
	slices.SortFunc(hosts, byAddress)
	return slices.CompactFunc(hosts, func(a, b v1alpha1.DiscoveredHost) bool { return a.Address == b.Address })
}
