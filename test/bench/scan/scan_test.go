// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

func TestTheSearchItselfIsMeasured(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	for range 2 {
		hollowtest.Wait(t, rack.Start(rack.Machine()), func(s node.Status) bool { return s.Listening })
	}
	network := netip.PrefixFrom(rack.Prefix().Addr(), 28)
	result, err := scanOurs(t.Context(), scanTask{Network: network})
	if err != nil {
		t.Fatal(err)
	}
	if status := result.Status; status.Maintenance != 2 || status.Unreachable != 14 {
		t.Errorf("discovery %+v", status)
	}
	if result.Took <= 0 || result.Reads <= 0 || result.Writes < 5 || result.Peak <= 0 {
		t.Errorf("figures %+v", result)
	}
	bare, err := connectBare(t.Context(), bareTask{network, bareTimeout, 4})
	if err != nil || bare.Open != 2 {
		t.Errorf("the bare loop found %d machines (%v)", bare.Open, err)
	}
}

func TestBusiestSecond(t *testing.T) {
	t.Parallel()
	at := func(milliseconds ...int) (out []time.Time) {
		for _, ms := range milliseconds {
			out = append(out, time.UnixMilli(int64(ms)))
		}
		return out
	}
	for name, tc := range map[string]struct {
		sent []time.Time
		want int
	}{
		"nothing":                      {nil, 0},
		"a second apart":               {at(0, 1000, 2000), 1},
		"across the turn of a second":  {at(0, 900, 1100, 1800, 3000), 3},
		"many at once, then many more": {at(0, 0, 0, 999, 1000, 1998), 4},
	} {
		if got := busiest(tc.sent); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestOnlySYNsToTheTalosPortCount(t *testing.T) {
	t.Parallel()
	packet := make([]byte, 44)
	packet[0], packet[9] = 0x46, 6 // a header of 24 bytes, TCP
	segment := packet[24:]
	segment[2], segment[3], segment[13] = talos.Port>>8, talos.Port&0xff, 0x02
	for name, tc := range map[string]struct {
		change func(packet, segment []byte) []byte
		want   bool
	}{
		"a SYN":          {func(p, _ []byte) []byte { return p }, true},
		"a SYN's answer": {func(p, s []byte) []byte { s[13] = 0x12; return p }, false},
		"another port":   {func(p, s []byte) []byte { s[3]++; return p }, false},
		"UDP":            {func(p, _ []byte) []byte { p[9] = 17; return p }, false},
		"a stump":        {func(p, _ []byte) []byte { return p[:30] }, false},
		"nothing":        {func([]byte, []byte) []byte { return nil }, false},
	} {
		copied := slices.Clone(packet)
		if got := asksForConnection(tc.change(copied, copied[24:])); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	if got := (series{3, 1, 2}).median(); got != 2 {
		t.Errorf("of three: %v", got)
	}
	if got := (series{4, 1, 2, 3}).median(); got != 2.5 {
		t.Errorf("of four: %v", got)
	}
}
