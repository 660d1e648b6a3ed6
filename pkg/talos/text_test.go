// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTheSameCauseHasTheSameText(t *testing.T) {
	t.Parallel()
	broken := func(ip string, port int) error {
		return &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.ParseIP(ip), Port: port},
			Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 50000}, Err: errors.New("connection reset by peer"),
		}
	}
	for _, ip := range []string{"127.0.0.1", "fd00::1"} {
		for name, text := range map[string]func(error) string{
			"of a call": func(err error) string {
				return (&CallError{Address: netip.MustParseAddr(ip), What: "a read", Err: err}).Error()
			},
			"of an apply": shownApplyError,
			"of a status": func(err error) string { return Steady(err.Error()) },
		} {
			one, two := text(broken(ip, 52654)), text(broken(ip, 41))
			if one != two || !strings.Contains(one, "50000: connection reset by peer") {
				t.Errorf("%s at %s: %q and %q", name, ip, one, two)
			}
		}
	}
}

func TestALongTextIsCutBetweenRunes(t *testing.T) {
	t.Parallel()
	for _, pad := range []string{"", "x", "xx"} {
		got := Steady(pad + strings.Repeat("€", maxCondition))
		if !utf8.ValidString(got) || len(got) > maxCondition+len("…") || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
	if got := Steady("short €"); got != "short €" {
		t.Errorf("got %q", got)
	}
}
