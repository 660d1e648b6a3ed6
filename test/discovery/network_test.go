// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/odd"
)

const (
	unfinished = "NotTalos: a server that doesn't finish the TLS handshake"
	notHTTP2   = "NotTalos: a TLS server that agrees to HTTP/2 and doesn't speak it"
	configured = "AlreadyConfigured: a configured Talos machine"
	sshServer  = "NotTalos: an SSH server"
	waiting    = "Maintenance: a Talos machine in maintenance mode that "
)

// strangers are servers that are no machine of Talos, with what a person is to read of each.
var strangers = []struct {
	open func(netip.AddrPort) (io.Closer, error)
	want string
}{
	{odd.SSH, sshServer},
	{odd.SMTP, "NotTalos: an SMTP or FTP server"},
	{odd.HTTP, "NotTalos: an HTTP server without TLS"},
	{odd.Silent, unfinished},
	{odd.Deaf, unfinished},
	{odd.HalfTLS, unfinished},
	{odd.Trickle, unfinished},
	{odd.Closing, "NotTalos: a server that closes the connection instead of speaking TLS"},
	{odd.Resetting, "NotTalos: a server that closes the connection instead of speaking TLS"},
	{odd.Flood, "NotTalos: a server that doesn't speak TLS"},
	{odd.TLSWithoutH2, "NotTalos: TLS without HTTP/2"},
	{odd.OldTLS, "NotTalos: a TLS server without TLS 1.3"},
	{odd.Locked, "AlreadyConfigured: a server that demands a client certificate, as a configured Talos machine does"},
	{odd.H2Reset, "NotTalos: a TLS server that closes the connection"},
	{odd.H2Silent, notHTTP2},
	{odd.H2Trickle, notHTTP2},
	{odd.H2Flood, notHTTP2},
	{odd.HTTPS, "NotTalos: an HTTPS server"},
	{odd.GRPC, "NotTalos: a gRPC server that isn't Talos"},
	{odd.GRPCFlood, "NotTalos: an HTTP/2 server that isn't Talos"},
	{odd.Lookalike, waiting + "answers what can't be understood"},
	{odd.LookalikeFlood, waiting + "answers what can't be understood"},
}

// maxGrowth is how much memory a scan may hold at once, whatever peers send: less than what one of them sends.
const maxGrowth = 48 << 20

// slack is what a probe may take beyond its limits on a busy computer.
const slack = 5 * time.Second

// It measures the process, so it doesn't run beside other tests.
func TestAnOddNetwork(t *testing.T) {
	w := newWorld(t, 20)
	n := populate(w)
	want := n.hosts
	for _, each := range n.waiting {
		hollowtest.Wait(t, each.node, node.InMaintenance)
	}
	for _, each := range n.others {
		hollowtest.Wait(t, each, func(s node.Status) bool { return s.Listening })
	}
	if len(n.waiting)+len(n.others) < 40 || len(n.hosts) < 20 {
		t.Fatalf("%d machines and %d odd hosts", len(n.waiting)+len(n.others), len(n.hosts))
	}

	leftover := goleak.IgnoreCurrent()
	memory := measure(t)
	begin := time.Now()
	w.search()
	took := time.Since(begin)
	memory.end(maxGrowth)
	t.Logf("scanned %d addresses in %s; the heap grew by %d MiB at most", w.cluster().Status.Discovery.Total, took.Round(time.Millisecond), memory.grown>>20)

	status := w.cluster().Status.Discovery
	doubles := n.double.claim(w, want)
	got := map[string]string{}
	for _, host := range status.Hosts {
		got[host.Address] = string(host.Class) + ": " + host.Message
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	n.count(t, status)
	objects := w.machines()
	if len(objects) != len(n.waiting)-doubles {
		t.Errorf("%d objects for %d machines of which %d claims to be another", len(objects), len(n.waiting), doubles)
	}
	for _, each := range n.plain {
		w.compare(objects, each.entry, each.node)
	}
	if got := resolution(w.machineAt(n.impostor.node.Address())); got != "False UUIDHeldByOther" && resolution(w.machineAt(n.victim.node.Address())) != "False UUIDHeldByOther" {
		t.Errorf("two machines with one UUID: the second to be found is %s", got)
	}
	for _, each := range n.junk {
		if got := resolution(w.machineAt(each.node.Address())); got != "False UnusableUUID" {
			t.Errorf("a machine with a junk UUID: %s", got)
		}
	}
	deadlines(t, w)
	w.unchanged()

	// More odd hosts than a status has room for: a farm of web servers.
	farm := 0
	for range maxHosts {
		n.server(w, odd.HTTP)
		farm++
	}
	w.scan("farm")
	status = w.cluster().Status.Discovery
	n.notTalos += farm
	n.count(t, status)
	if len(status.Hosts) != maxHosts {
		t.Errorf("%d hosts are listed, want %d", len(status.Hosts), maxHosts)
	}
	for address, words := range want {
		listed := slices.ContainsFunc(status.Hosts, func(h v1alpha1.DiscoveredHost) bool { return h.Address == address })
		if !listed && !strings.HasPrefix(words, "NotTalos") {
			t.Errorf("%s gave way to a web server: %s", address, words)
		}
	}

	w.stop()
	n.close()
	var left error
	defer func() {
		if left != nil {
			t.Error(left)
		}
	}()
	w.eventually("every goroutine of the search for machines ends", func() bool {
		// The API server of the test asks its Kubernetes for its rights now and then, over a connection that it keeps.
		left = goleak.Find(leftover, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*conn).serve"))
		return left == nil
	})
}

// maxHosts is how many odd hosts a status lists.
const maxHosts = 256

// machine is a hollow machine with its entry.
type machine struct {
	entry fleet.Machine
	node  *node.Node
}

// A peer that looks like a machine and never answers costs the time for reading one, and no more.
func TestAMachineThatHangsWhileItIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 24)
	w.readTimeout = 2 * time.Second
	hanging, _ := w.open(odd.LookalikeHang)
	w.search()
	status := w.cluster().Status.Discovery
	want := v1alpha1.DiscoveredHost{Address: hanging.String(), Class: v1alpha1.HostMaintenance, Message: strings.TrimPrefix(waiting, "Maintenance: ") + "doesn't answer in time"}
	if !slices.Contains(status.Hosts, want) || status.Maintenance != 1 || len(w.machines()) != 0 {
		t.Errorf("discovery %+v", status)
	}
	w.unchanged()
}

// network is what is in the odd network.
type network struct {
	// plain are machines of which each has one address and one name; waiting are all in maintenance mode.
	plain, waiting []machine
	// victim and impostor have one UUID; junk have one that is no good.
	victim, impostor machine
	junk             []machine
	double           double
	// others are configured machines.
	others []*node.Node
	// hosts are odd, by address, with what is to be said of them.
	hosts map[string]string
	// counts of addresses.
	maintenance, configured, notTalos int
	servers                           []io.Closer
}

// double is a machine and another one that says to be it in all.
type double struct{ real, clone machine }

// claim adds what is said of the one that was found second, and returns how many that are.
func (d double) claim(w *world, hosts map[string]string) int {
	w.Helper()
	first, second := d.real, d.clone
	name := strings.ToLower(d.real.entry.UUID)
	if w.machines()[name].Status.Addresses[0] == d.clone.node.Address().String() {
		first, second = second, first
	}
	hosts[second.node.Address().String()] = fmt.Sprintf("%ssays it is machine %s, which answers at %s with another certificate", waiting, name, first.node.Address())
	return 1
}

// populate fills the rack: 40 machines, and servers that are none.
func populate(w *world) *network {
	w.Helper()
	n := &network{hosts: map[string]string{}}
	start := func(change func(*fleet.Machine)) machine {
		entry := w.rack.Machine()
		change(&entry)
		m := machine{entry, w.rack.Start(entry)}
		n.waiting = append(n.waiting, m)
		n.maintenance++
		return m
	}
	same := func(*fleet.Machine) {}
	for range 30 {
		n.plain = append(n.plain, start(same))
	}
	n.victim = start(same)
	n.impostor = start(func(m *fleet.Machine) { m.UUID = n.victim.entry.UUID })
	for range 2 {
		n.junk = append(n.junk, start(func(m *fleet.Machine) { m.UUID = "03000200-0400-0500-0006-000700080009" }))
	}
	n.double.real = start(same)
	n.double.clone = start(func(m *fleet.Machine) {
		address, name := m.Address, m.Name
		*m = n.double.real.entry
		m.Address, m.Name = address, name
	})
	// A virtual address that is one of the machines.
	two := start(same)
	if err := two.node.AlsoAt(netip.PrefixFrom(w.rack.Addr(), 32)); err != nil {
		w.Fatal(err)
	}
	n.maintenance++
	for range 3 {
		entry := w.rack.Machine()
		entry.State = fleet.StateForeign
		foreign := w.rack.Start(entry)
		n.others = append(n.others, foreign)
		n.hosts[foreign.Address().String()] = configured
		n.configured++
	}
	for _, stranger := range strangers {
		n.stranger(w, stranger.open, stranger.want)
	}
	n.server(w, odd.Proxy(start(same).node.Address()))
	n.maintenance++
	n.stranger(w, odd.Proxy(n.others[0].Address()), configured)
	n.hosts[w.beacon.String()] = sshServer
	n.notTalos++
	for _, address := range w.rack.Claimed() {
		n.hosts[address.String()] = unfinished
		n.notTalos++
	}
	return n
}

func (n *network) server(w *world, open func(netip.AddrPort) (io.Closer, error)) netip.Addr {
	w.Helper()
	address, server := w.open(open)
	n.servers = append(n.servers, server)
	return address
}

func (n *network) stranger(w *world, open func(netip.AddrPort) (io.Closer, error), want string) {
	w.Helper()
	n.hosts[n.server(w, open).String()] = want
	switch class, _, _ := strings.Cut(want, ":"); v1alpha1.HostClass(class) {
	case v1alpha1.HostMaintenance:
		n.maintenance++
	case v1alpha1.HostAlreadyConfigured:
		n.configured++
	default:
		n.notTalos++
	}
}

func (n *network) close() {
	for _, server := range n.servers {
		_ = server.Close() // the test ends
	}
}

func (n *network) count(t *testing.T, got v1alpha1.DiscoveryStatus) {
	t.Helper()
	const total = 4094
	want := v1alpha1.DiscoveryStatus{
		Total: total, Done: total, Maintenance: int32(n.maintenance), AlreadyConfigured: int32(n.configured), NotTalos: int32(n.notTalos),
		Unreachable: int32(total - n.maintenance - n.configured - n.notTalos),
		Phase:       got.Phase, Hosts: got.Hosts, ScanRequest: got.ScanRequest, ObservedGeneration: got.ObservedGeneration,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// deadlines demands that each address was classified within the limits of a probe.
func deadlines(t *testing.T, w *world) {
	t.Helper()
	all := limits.ConnectTimeout + limits.HandshakeTimeout + limits.FirstByteTimeout + limits.ConfirmTimeout
	for address, each := range w.prober.snapshot() {
		if each.longest > all+slack {
			t.Errorf("%s (%s) took %s to classify, its deadlines add up to %s", address, each.last.Message, each.longest, all)
		}
	}
}

// memoryMeter measures what a process holds at once.
type memoryMeter struct {
	t             *testing.T
	before, grown uint64
	stop          context.CancelFunc
	sampling      sync.WaitGroup
}

// measure begins. What is garbage doesn't count, so it is collected often.
func measure(t *testing.T) *memoryMeter {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m := &memoryMeter{t: t, stop: cancel}
	debug.FreeOSMemory()
	m.before = live()
	often := debug.SetGCPercent(25)
	m.sampling.Go(func() {
		defer debug.SetGCPercent(often)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if now := live(); now > m.before {
					m.grown = max(m.grown, now-m.before)
				}
			}
		}
	})
	return m
}

// end demands that no more was held than the limit.
func (m *memoryMeter) end(limit uint64) {
	m.t.Helper()
	m.stop()
	m.sampling.Wait()
	if m.grown > limit {
		m.t.Errorf("the scan held %d MiB at once, allowed are %d MiB: what a peer sends must not be kept", m.grown>>20, limit>>20)
	}
}

// live is the size of what is reachable, and stacks.
func live() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}
