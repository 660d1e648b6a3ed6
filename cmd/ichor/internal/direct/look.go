// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// nodeTimeout bounds connecting to a machine, and then each question to it. Machines are asked at the same time, so
	// those that hang cost this once.
	nodeTimeout = 5 * time.Second
	// parallel is how many machines are asked at a time.
	parallel = 16
	// maxNodes is how many machines are asked at most: those that were named, and the control planes that these know of.
	maxNodes = 64
)

// Looker asks machines. Its credentials need os:reader.
type Looker struct {
	Dialer      talos.Dialer
	Prober      talos.Prober
	Credentials talos.Credentials
	// Timeout bounds connecting to a machine, and then each question to it; nodeTimeout if zero.
	Timeout time.Duration
}

func (l *Looker) timeout() time.Duration { return cmp.Or(l.Timeout, nodeTimeout) }

// Look asks the machines at some addresses, and then the control planes that these know of. It takes a bounded time,
// however many hang; addresses of one and the same machine, such as a virtual one, become one view.
func (l *Looker) Look(ctx context.Context, addresses []netip.Addr) []View {
	views := l.askAll(ctx, addresses)
	if more := unasked(views); len(more) > 0 {
		views = append(views, l.askAll(ctx, more[:min(len(more), max(maxNodes-len(views), 0))])...)
	}
	views = merge(views)
	slices.SortFunc(views, func(a, b View) int { return a.Address.Compare(b.Address) })
	return views
}

// unasked are the addresses of control planes that some machine knows of, and nobody asked: of each the first. A machine
// that was asked at an address which isn't its own, a virtual one for instance, is asked again at its own: what is to be
// done to it must not hit another.
func unasked(views []View) []netip.Addr {
	asked := func(address netip.Addr) bool {
		return slices.ContainsFunc(views, func(v View) bool { return v.Address == address || v.own() && v.has(address) })
	}
	var out []netip.Addr
	add := func(addresses []netip.Addr) {
		if len(addresses) > 0 && !slices.ContainsFunc(addresses, asked) && !slices.Contains(out, addresses[0]) {
			out = append(out, addresses[0])
		}
	}
	for i := range views {
		if v := &views[i]; !v.own() {
			add(v.Survey.Addresses)
		}
	}
	for _, peer := range peersOf(views) {
		if peer.ControlPlane && !answers(views, &peer) {
			add(peer.Addresses)
		}
	}
	for _, member := range listOf(views) {
		add(peerAddresses(&member))
	}
	return out
}

// merge leaves one view of each machine: that of an address which it calls its own, if it answers there.
func merge(views []View) []View {
	slices.SortStableFunc(views, func(a, b View) int { return cmp.Compare(boolInt(!a.own()), boolInt(!b.own())) })
	seen := map[string]bool{}
	views = slices.DeleteFunc(views, func(v View) bool {
		if v.Survey == nil || v.Survey.NodeID == "" {
			return false
		}
		again := seen[v.Survey.NodeID]
		seen[v.Survey.NodeID] = true
		return again
	})
	answering := slices.Clone(views)
	return slices.DeleteFunc(views, func(v View) bool {
		return v.State == Silent && slices.ContainsFunc(answering, func(other View) bool {
			return other.Survey != nil && slices.Contains(other.Survey.Addresses, v.Address)
		})
	})
}

// own tells that the machine calls the address its own, or doesn't say.
func (v *View) own() bool {
	return v.Survey == nil || len(v.Survey.Addresses) == 0 || slices.Contains(v.Survey.Addresses, v.Address)
}

func (l *Looker) askAll(ctx context.Context, addresses []netip.Addr) []View {
	views := make([]View, len(addresses))
	slots := make(chan struct{}, parallel)
	var group sync.WaitGroup
	for i, address := range addresses {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			views[i] = l.ask(ctx, address)
		})
	}
	group.Wait()
	return views
}

// ask looks at one machine.
func (l *Looker) ask(ctx context.Context, address netip.Addr) View {
	dialCtx, cancel := context.WithTimeout(ctx, l.timeout())
	defer cancel()
	node, err := l.Dialer.DialConfigured(dialCtx, address, l.Credentials)
	if err != nil {
		return l.classify(ctx, address, err)
	}
	defer node.Close() //nolint:errcheck // nothing was written
	view := View{Address: address, State: Answers}
	surveyed := make(chan struct{})
	go func() {
		defer close(surveyed)
		callCtx, cancel := context.WithTimeout(ctx, l.timeout())
		defer cancel()
		survey, err := node.Survey(callCtx)
		if err != nil {
			view.Message = causeOf(err)
			return
		}
		view.Survey = survey
	}()
	var etcd View
	etcd.askEtcd(ctx, node, l.timeout())
	<-surveyed
	view.Status, view.StatusProblem, view.Members, view.Alarms = etcd.Status, etcd.StatusProblem, etcd.Members, etcd.Alarms
	if view.Survey == nil && view.Status == nil {
		view.State = Silent
	}
	return view
}

// askEtcd asks the member first, which answers alone; and of what takes a quorum, only if the member has one: without it
// such a question hangs.
func (v *View) askEtcd(ctx context.Context, node talos.ConfiguredNode, timeout time.Duration) {
	call := func(do func(context.Context)) {
		callCtx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		do(callCtx)
	}
	call(func(ctx context.Context) {
		status, err := node.EtcdStatus(ctx)
		if err != nil {
			v.StatusProblem = causeOf(err)
			return
		}
		v.Status = &status
	})
	if v.Status == nil || !v.Status.KnowsLeader() {
		return
	}
	// Neither is needed: the report does without what isn't told.
	call(func(ctx context.Context) { v.Members, _ = node.EtcdMembers(ctx) })
	call(func(ctx context.Context) { v.Alarms, _ = node.EtcdAlarms(ctx) })
}

// classify says why there is no connection to a configured machine.
func (l *Looker) classify(ctx context.Context, address netip.Addr, failed error) View {
	view := View{Address: address, State: Silent, Message: causeOf(failed)}
	if talos.IsUnreachable(failed) || ctx.Err() != nil {
		return view
	}
	probeCtx, cancel := context.WithTimeout(ctx, l.timeout())
	defer cancel()
	switch probe := l.Prober.Probe(probeCtx, address); probe.Class {
	case v1alpha1.HostMaintenance:
		view.State, view.Message = Maintenance, "in maintenance mode: it has no configuration"
	case v1alpha1.HostAlreadyConfigured:
		view.State, view.Message = Refused, "a configured machine that this bundle doesn't fit: "+view.Message
	case v1alpha1.HostNotTalos:
		view.State, view.Message = NotTalos, probe.Message
	}
	return view
}

// causeOf is an error without what was tried at which address, for that stands beside it.
func causeOf(err error) string {
	var errno syscall.Errno // "connection refused", without the connection's two ends before it
	if errors.As(err, &errno) {
		return errno.Error()
	}
	var call *talos.CallError
	if errors.As(err, &call) {
		return call.Cause()
	}
	return err.Error()
}

// ReportOf puts together what was seen.
func ReportOf(views []View, apis []API) *Report {
	if apis == nil {
		apis = []API{}
	}
	return &Report{Nodes: nodesOf(views), Etcd: etcdOf(views), Kubernetes: apis}
}
