// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestResultsKeepWhatEachAddressIs(t *testing.T) {
	t.Parallel()
	p := newPlan(discover("10.9.0.7 10.0.0.200 2001:db8::1 10.1.0.1", "10.0.0.0/29"))
	r := newResults(p, nil)
	want := map[string]finding{
		"10.9.0.7":    {class: v1alpha1.HostUnreachable, odd: "no answer"},
		"10.0.0.200":  {class: v1alpha1.HostMaintenance, odd: "says too little", unread: true},
		"10.0.0.3":    {class: v1alpha1.HostMaintenance, machine: "a"},
		"10.0.0.6":    {class: v1alpha1.HostUnreachable},
		"2001:db8::1": {class: v1alpha1.HostNotTalos, odd: "an SSH server"},
	}
	for i, address := range p.addresses {
		if found, looked := want[address.String()]; looked {
			r.add(i, found)
		}
	}
	for _, address := range append(p.addresses, netip.MustParseAddr("10.7.7.7")) {
		text := address.String()
		if diff := cmp.Diff(want[text], r.at(text), cmp.AllowUnexported(finding{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if unread := r.unread(); len(unread) != 1 || unread[0].String() != "10.0.0.200" {
		t.Errorf("unread %v", unread)
	}
}

func TestALargeNetworkTakesLittleMemory(t *testing.T) {
	// What is kept, not what passes through: the race detector makes the latter a matter of chance.
	kept := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := kept()
	p := newPlan(discover("", "10.0.0.0/16"))
	r := newResults(p, nil)
	for i := range p.addresses {
		r.add(i, finding{class: v1alpha1.HostUnreachable})
	}
	if bytes := (kept() - before) / int64(len(p.addresses)); bytes > 40 {
		t.Errorf("%d bytes an address", bytes)
	}
	if r.cursor != len(p.addresses) {
		t.Errorf("the cursor is at %d", r.cursor)
	}
	runtime.KeepAlive(p)
}
