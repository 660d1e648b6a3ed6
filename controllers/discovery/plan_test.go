// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func discover(addresses string, subnets ...string) v1alpha1.Discovery {
	out := v1alpha1.Discovery{Addresses: strings.Fields(addresses)}
	for _, cidr := range subnets {
		out.Subnets = append(out.Subnets, v1alpha1.DiscoverySubnet{CIDR: cidr})
	}
	return out
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		discovery v1alpha1.Discovery
		want      string
		faults    int
	}{
		"nothing":                          {discover(""), "", 0},
		"without name and broadcast":       {discover("", "10.0.0.0/30"), "10.0.0.1 10.0.0.2", 0},
		"host bits are ignored":            {discover("", "10.0.0.2/30"), "10.0.0.1 10.0.0.2", 0},
		"a network of two":                 {discover("", "10.0.0.4/31"), "10.0.0.4 10.0.0.5", 0},
		"a network of one":                 {discover("", "10.0.0.4/32"), "10.0.0.4", 0},
		"all of IPv6":                      {discover("", "2001:db8::/126"), "2001:db8:: 2001:db8::1 2001:db8::2 2001:db8::3", 0},
		"the last of all":                  {discover("", "255.255.255.252/30"), "255.255.255.253 255.255.255.254", 0},
		"single addresses after subnets":   {discover("10.0.0.1 10.0.9.7", "10.0.0.0/30"), "10.0.0.1 10.0.0.2 10.0.9.7", 0},
		"a broadcast address, listed":      {discover("10.0.0.3", "10.0.0.0/30"), "10.0.0.1 10.0.0.2 10.0.0.3", 0},
		"overlapping subnets":              {discover("", "10.0.0.0/30", "10.0.0.0/29"), "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6", 0},
		"an address twice":                 {discover("10.0.9.7 ::ffff:10.0.9.7"), "10.0.9.7", 0},
		"what can't be scanned is skipped": {discover("x 10.0.9.7", "10.0.0.0/8", "nonsense", "2001:db8::/64"), "10.0.9.7", 4},
	} {
		p := newPlan(tc.discovery)
		var got []string
		for _, address := range p.addresses {
			got = append(got, address.String())
		}
		if diff := cmp.Diff(strings.Fields(tc.want), got, cmp.Transformer("empty", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
			t.Errorf("%s: plan (-want +got):\n%s", name, diff)
		}
		if len(p.faults) != tc.faults {
			t.Errorf("%s: faults %q, want %d", name, p.faults, tc.faults)
		}
		for _, address := range p.addresses {
			if !inScope(tc.discovery, address) {
				t.Errorf("%s: %s is scanned and out of scope", name, address)
			}
		}
	}
	if n := len(newPlan(discover("", "10.0.0.0/16")).addresses); n != 65534 {
		t.Errorf("a /16 has %d addresses to scan, want 65534", n)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add("10.0.0.0/29", "10.0.0.0/30", "10.0.0.7")
	f.Add("2001:db8::/120", "::/0", "::1")
	f.Fuzz(func(t *testing.T, one, two, address string) {
		p := newPlan(v1alpha1.Discovery{Subnets: []v1alpha1.DiscoverySubnet{{CIDR: one}, {CIDR: two}}, Addresses: []string{address}})
		seen := map[netip.Addr]bool{}
		for _, a := range p.addresses {
			if seen[a] {
				t.Fatalf("%s is scanned twice", a)
			}
			seen[a] = true
		}
	})
}
