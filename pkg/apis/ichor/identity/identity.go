// SPDX-License-Identifier: Apache-2.0

// Package identity says which machine a machine is: it normalises what firmware reports, judges whether that can be
// trusted, names machines, and holds the one rule by which two identities are the same machine. It is pure, and knows
// neither the API's versions nor Talos, so that the storage layer and the controllers share one judgement.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"slices"
	"strings"
)

// WeakPrefix starts the name of every machine whose UUID can't be its name.
const WeakPrefix = "weak-"

// weakHashLength is the number of hexadecimal digits of a weak name: 80 bits, far beyond any fleet's collisions.
const weakHashLength = 20

// Identity is who a machine says it is. Its fields are those of MachineIdentity of every API version, so a Go
// conversion is enough to get one.
type Identity struct {
	// UUID is the SMBIOS system UUID.
	UUID string
	// SerialNumber is the SMBIOS system serial number.
	SerialNumber string
	// MACAddresses are the permanent addresses of the physical links.
	MACAddresses []string
}

// Normalize returns the identity in the form in which it is stored and compared: the UUID in lower case, the serial
// number without white space around it, the MAC addresses in lower case with colons, sorted, each once. Addresses that
// no network card can own (not 48 bits or more, zero, group addresses) are left out. Junk is kept: judging is Name's part.
func Normalize(id Identity) Identity {
	return Identity{
		UUID:         normalizeUUID(id.UUID),
		SerialNumber: strings.TrimSpace(id.SerialNumber),
		MACAddresses: normalizeMACs(id.MACAddresses),
	}
}

// Name returns the name of the machine's object, and whether it is strong: the UUID, if it is usable and there is a
// permanent MAC address to tell two boards with one UUID apart; else the weak name. The address counts only for a
// machine that reports nothing else.
func Name(id Identity, address string) (name string, strong bool) {
	id = Normalize(id)
	if IsStrong(id) {
		return id.UUID, true
	}
	return WeakName(id, address), false
}

// IsStrong tells whether the machine is named by its UUID.
func IsStrong(id Identity) bool {
	id = Normalize(id)
	return !IsJunkUUID(id.UUID) && len(id.MACAddresses) > 0
}

// WeakName is the name of a machine that can't have its UUID as name, because it is no good or another machine's.
func WeakName(id Identity, address string) string {
	id = Normalize(id)
	serial := usableSerial(id.SerialNumber)
	seed := "serial=" + serial + " mac=" + strings.Join(id.MACAddresses, ",")
	if serial == "" && len(id.MACAddresses) == 0 {
		seed = "address=" + strings.ToLower(strings.TrimSpace(address))
	}
	sum := sha256.Sum256([]byte(seed))
	return WeakPrefix + hex.EncodeToString(sum[:])[:weakHashLength]
}

// NameFits tells whether an object with this identity may have this name: its UUID if it is strong, or its weak name
// (also for a strong one, because the UUID may be another machine's). A machine that reports nothing but its address
// may have any well-formed weak name.
func NameFits(id Identity, name string) bool {
	id = Normalize(id)
	if IsStrong(id) && name == id.UUID {
		return true
	}
	if usableSerial(id.SerialNumber) == "" && len(id.MACAddresses) == 0 {
		return isWeakName(name)
	}
	return name == WeakName(id, "")
}

// SameMachine is the rule by which two identities are one machine: equal UUIDs, serial numbers that are equal or both
// missing, and at least one permanent MAC address in common. A UUID that is no good proves nothing, so without a serial
// number either, one machine's MAC addresses must all be the other's (a card may have been added): two boards behind one
// docking station stay two. Anything less is a reason for doubt, never a match.
func SameMachine(a, b Identity) bool {
	if normalizeUUID(a.UUID) != normalizeUUID(b.UUID) { // nearly always: a fleet is compared with each machine that is seen
		return false
	}
	a, b = Normalize(a), Normalize(b)
	serial := usableSerial(a.SerialNumber)
	if serial != usableSerial(b.SerialNumber) {
		return false
	}
	common := len(commonMACs(a, b))
	if common == 0 {
		return false
	}
	if IsJunkUUID(a.UUID) && serial == "" {
		return common == min(len(a.MACAddresses), len(b.MACAddresses))
	}
	return true
}

// Shared is what two identities have in common that should be one machine's alone. Missing and junk values are never
// shared: empty doesn't equal empty.
type Shared struct {
	UUID, SerialNumber bool
	// MACAddresses in common.
	MACAddresses []string
}

// Any tells whether anything is shared.
func (s Shared) Any() bool { return s.UUID || s.SerialNumber || len(s.MACAddresses) > 0 }

// Overlap returns what two identities share.
func Overlap(a, b Identity) Shared {
	a, b = Normalize(a), Normalize(b)
	serial := usableSerial(a.SerialNumber)
	return Shared{
		UUID:         a.UUID == b.UUID && !IsJunkUUID(a.UUID),
		SerialNumber: serial != "" && serial == usableSerial(b.SerialNumber),
		MACAddresses: commonMACs(a, b),
	}
}

// Equal tells whether two identities say the same, word for word after normalising.
func Equal(a, b Identity) bool {
	a, b = Normalize(a), Normalize(b)
	return a.UUID == b.UUID && a.SerialNumber == b.SerialNumber && slices.Equal(a.MACAddresses, b.MACAddresses)
}

// commonMACs of two normalised identities.
func commonMACs(a, b Identity) []string {
	var common []string
	for _, mac := range a.MACAddresses {
		if _, found := slices.BinarySearch(b.MACAddresses, mac); found {
			common = append(common, mac)
		}
	}
	return common
}

func normalizeMACs(macs []string) []string {
	var out []string
	for _, text := range macs {
		if mac := NormalizeMAC(text); mac != "" {
			out = append(out, mac)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// NormalizeMAC returns a link's address in lower case with colons; empty if no network card can own it.
func NormalizeMAC(text string) string {
	mac, err := net.ParseMAC(strings.TrimSpace(text))
	if err != nil || mac[0]&1 == 1 || !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 }) {
		return ""
	}
	return mac.String()
}

func isWeakName(name string) bool {
	hash, found := strings.CutPrefix(name, WeakPrefix)
	return found && len(hash) == weakHashLength && strings.Trim(hash, "0123456789abcdef") == ""
}
