// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	good  = "4c4c4544-0051-3610-8052-b4c04f4c3132"
	other = "4c4c4544-0051-3610-8052-b4c04f4c3133"
	junk  = "03000200-0400-0500-0006-000700080009"
	macA  = "02:00:5e:00:53:01"
	macB  = "02:00:5e:00:53:02"
	macC  = "02:00:5e:00:53:03"
)

func id(uuid, serial string, macs ...string) identity.Identity {
	return identity.Identity{UUID: uuid, SerialNumber: serial, MACAddresses: macs}
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	got := identity.Normalize(id(" "+strings.ToUpper(good)+"\n", " S1 ", macB, "02-00-5E-00-53-01", macB,
		"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "", "nonsense"))
	want := id(good, "S1", macA, macB)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Normalize (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got, identity.Normalize(got)); diff != "" {
		t.Errorf("normalising twice changes the identity (-once +twice):\n%s", diff)
	}
}

func TestIsJunkUUID(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		uuid string
		want bool
	}{
		"empty":                    {"", true},
		"all zeros":                {"00000000-0000-0000-0000-000000000000", true},
		"all ones":                 {"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", true},
		"one repeated digit":       {"11111111-1111-1111-1111-111111111111", true},
		"a vendor's default":       {junk, true},
		"the same in upper case":   {strings.ToUpper(junk), true},
		"in the other byte order":  {"00020003-0004-0005-0006-000700080009", true},
		"text":                     {"Not Settable", true},
		"no hyphens":               {strings.ReplaceAll(good, "-", ""), true},
		"braces":                   {"{" + good[:34] + "}", true},
		"a real one":               {good, false},
		"a real one in upper case": {strings.ToUpper(good), false},
		"zeros with a MAC at the end, as some boards have": {"00000000-0000-0000-0000-ac1f6b0a0b0c", false},
	} {
		if got := identity.IsJunkUUID(tc.uuid); got != tc.want {
			t.Errorf("%s: IsJunkUUID(%q) = %t, want %t", name, tc.uuid, got, tc.want)
		}
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	name := func(id identity.Identity, address string) string {
		n, _ := identity.Name(id, address)
		return n
	}
	if n, strong := identity.Name(id(strings.ToUpper(good), "", macA), "10.0.0.1"); n != good || !strong {
		t.Errorf("a good UUID: name %q, strong %t; want the UUID in lower case, strong", n, strong)
	}
	if n, strong := identity.Name(id(good, "S1"), "10.0.0.1"); strong || !strings.HasPrefix(n, identity.WeakPrefix) {
		t.Errorf("a good UUID without a permanent MAC: name %q, strong %t; want a weak name, because it could never be matched", n, strong)
	}
	for what, pair := range map[string][2]string{
		"boards with one junk UUID":                    {name(id(junk, "", macA), "a"), name(id(junk, "", macB), "a")},
		"boards with one junk UUID and serial":         {name(id(junk, "Default string"), "a"), name(id(junk, "Default string"), "b")},
		"machines that report nothing":                 {name(id("", ""), "a"), name(id("", ""), "b")},
		"a serial number that looks like a MAC":        {name(id("", macA), "a"), name(id("", "", macA), "a")},
		"machines with one MAC and two serial numbers": {name(id("", "S1", macA), "a"), name(id("", "S2", macA), "a")},
	} {
		if pair[0] == pair[1] {
			t.Errorf("%s have one name %q", what, pair[0])
		}
	}
	if a, b := name(id(junk, "S1", macA, macB), "a"), name(id("", "S1", macB, macA), "b"); a != b {
		t.Errorf("the name of a machine with a serial number and MACs moved with its address: %q, %q", a, b)
	}
}

func TestNameFits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		id   identity.Identity
		name string
		want bool
	}{
		"strong by its UUID":                        {id(good, "S1", macA), good, true},
		"strong by its weak name":                   {id(good, "S1", macA), identity.WeakName(id(good, "S1", macA), ""), true},
		"strong by another UUID":                    {id(good, "S1", macA), other, false},
		"weak by its weak name":                     {id(junk, "", macA), identity.WeakName(id(junk, "", macA), ""), true},
		"weak by its junk UUID":                     {id(junk, "", macA), junk, false},
		"weak by another's weak name":               {id(junk, "", macA), identity.WeakName(id(junk, "", macB), ""), false},
		"nothing but an address":                    {id("", ""), identity.WeakName(id("", ""), "10.0.0.1"), true},
		"nothing but an address, by any other name": {id("", ""), "weak-machine", false},
	} {
		if got := identity.NameFits(tc.id, tc.name); got != tc.want {
			t.Errorf("%s: NameFits(%v, %q) = %t, want %t", name, tc.id, tc.name, got, tc.want)
		}
	}
}

func TestSameMachine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b identity.Identity
		want bool
	}{
		"equal":                              {id(good, "S1", macA), id(good, "S1", macA), true},
		"written differently":                {id(good, "S1", macA), id(strings.ToUpper(good), " S1", "02-00-5E-00-53-01"), true},
		"one of two cards swapped":           {id(good, "S1", macA, macB), id(good, "S1", macB, macC), true},
		"all cards swapped":                  {id(good, "S1", macA), id(good, "S1", macB), false},
		"UUID changed":                       {id(good, "S1", macA), id(other, "S1", macA), false},
		"serial changed":                     {id(good, "S1", macA), id(good, "S2", macA), false},
		"serial appeared":                    {id(good, "", macA), id(good, "S1", macA), false},
		"no serials":                         {id(good, "", macA), id(good, "", macA), true},
		"junk serials of two kinds":          {id(good, "None", macA), id(good, "", macA), true},
		"no MACs":                            {id(good, "S1"), id(good, "S1"), false},
		"nothing at all":                     {id("", ""), id("", ""), false},
		"junk UUID, serial equal":            {id(junk, "S1", macA, macB), id(junk, "S1", macB, macC), true},
		"junk UUID, a card added":            {id(junk, "", macA), id(junk, "", macA, macB), true},
		"junk UUID, a card removed":          {id(junk, "", macA, macB), id(junk, "", macA), true},
		"junk UUID, one shared docking card": {id(junk, "", macA, macC), id(junk, "", macB, macC), false},
		"junk UUID, different boards":        {id(junk, "", macA), id(junk, "", macB), false},
		"no UUID, serial and MAC equal":      {id("", "S1", macA), id("", "S1", macA), true},
	} {
		if got := identity.SameMachine(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: SameMachine(%v, %v) = %t, want %t", name, tc.a, tc.b, got, tc.want)
		}
		if got := identity.SameMachine(tc.b, tc.a); got != tc.want {
			t.Errorf("%s, the other way round: SameMachine(%v, %v) = %t, want %t", name, tc.b, tc.a, got, tc.want)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b identity.Identity
		want identity.Shared
	}{
		"nothing, both empty":   {id("", ""), id("", ""), identity.Shared{}},
		"nothing, both junk":    {id(junk, "None"), id(junk, "none"), identity.Shared{}},
		"the UUID":              {id(good, "S1", macA), id(good, "S2", macB), identity.Shared{UUID: true}},
		"the serial number":     {id(good, "S1", macA), id(other, "S1", macB), identity.Shared{SerialNumber: true}},
		"a MAC":                 {id(good, "S1", macA), id(other, "S2", macA, macB), identity.Shared{MACAddresses: []string{macA}}},
		"nothing but the world": {id(good, "S1", macA), id(other, "S2", macB), identity.Shared{}},
	} {
		got := identity.Overlap(tc.a, tc.b)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: Overlap(%v, %v) (-want +got):\n%s", name, tc.a, tc.b, diff)
		}
		if got.Any() != (got.UUID || got.SerialNumber || got.MACAddresses != nil) {
			t.Errorf("%s: Any() = %t for %+v", name, got.Any(), got)
		}
	}
}

// An API identity converts without a helper; this breaks the build if the fields ever differ.
func TestAPIIdentityConverts(t *testing.T) {
	t.Parallel()
	api := v1alpha1.MachineIdentity{UUID: good, SerialNumber: "S1", MACAddresses: []string{macA}}
	if !identity.Equal(identity.Identity(api), id(good, "S1", macA)) {
		t.Error("a converted identity differs from the original")
	}
}

func FuzzName(f *testing.F) {
	f.Add(good, "S1", macA+","+macB, "10.0.0.1")
	f.Add(junk, "", "", "fe80::1")
	f.Add("\xff", "\x00", "zz", "")
	f.Fuzz(func(t *testing.T, uuid, serial, macs, address string) {
		id := id(uuid, serial, strings.Split(macs, ",")...)
		name, strong := identity.Name(id, address)
		if strong == strings.HasPrefix(name, identity.WeakPrefix) {
			t.Errorf("Name(%+v) = %q, strong %t", id, name, strong)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(name) > 63 {
			t.Errorf("Name(%+v) = %q, which is no object's name", id, name)
		}
		if !identity.NameFits(id, name) {
			t.Errorf("the name %q of %+v doesn't fit it", name, id)
		}
		if strong && !identity.SameMachine(id, id) {
			t.Errorf("a strong identity isn't the same as itself: %+v", id)
		}
	})
}
