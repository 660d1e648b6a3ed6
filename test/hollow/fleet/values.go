// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written with an SI (GB) or IEC (GiB) unit.
type Size uint64

var sizeUnits = []struct {
	suffix string
	factor uint64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// ParseSize reads a size such as 512GB, 1.5TiB or 1048576.
func ParseSize(s string) (Size, error) {
	number, factor := strings.TrimSpace(s), uint64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	if strings.ContainsAny(number, "eE+-/_xX") {
		return 0, fmt.Errorf("size %q: not a number with a unit such as 512GB or 32GiB", s)
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("size %q: not a number with a unit such as 512GB or 32GiB", s)
	}
	value.Mul(value, new(big.Rat).SetInt(new(big.Int).SetUint64(factor)))
	if !value.IsInt() {
		return 0, fmt.Errorf("size %q: not a whole number of bytes", s)
	}
	if !value.Num().IsUint64() || value.Num().Uint64() > math.MaxInt64 {
		return 0, fmt.Errorf("size %q: too large", s)
	}
	return Size(value.Num().Uint64()), nil
}

// String writes the size with the unit that needs no fraction and makes it shortest.
func (s Size) String() string {
	best := strconv.FormatUint(uint64(s), 10) + "B"
	for _, u := range sizeUnits {
		if text := strconv.FormatUint(uint64(s)/u.factor, 10) + u.suffix; s != 0 && uint64(s)%u.factor == 0 && len(text) < len(best) {
			best = text
		}
	}
	return best
}

// MarshalJSON implements json.Marshaler.
func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON accepts a string with a unit or a plain number of bytes.
func (s *Size) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		text = string(data)
	}
	size, err := ParseSize(text)
	if err != nil {
		return err
	}
	*s = size
	return nil
}

// Duration is a time.Duration written as Go does: 1s, 250ms.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON accepts Go's notation only.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("duration %s: want a string such as \"1s\"", data)
	}
	value, err := time.ParseDuration(text)
	if err != nil || value < 0 {
		return fmt.Errorf("duration %q: want a positive time such as 1s or 250ms", text)
	}
	*d = Duration(value)
	return nil
}

// defaultPrefixBits is the length of the prefix of an address that is given without one.
const defaultPrefixBits = 24

// Prefix is an address with the length of its network's prefix.
type Prefix struct{ netip.Prefix }

// ParsePrefix reads 127.0.16.11/20 or 127.0.16.11, which means /24.
func ParsePrefix(s string) (Prefix, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return Prefix{}, fmt.Errorf("address %q: %w", s, err)
		}
		return Prefix{p}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return Prefix{}, fmt.Errorf("address %q: %w", s, err)
	}
	return PrefixOf(a), nil
}

// PrefixOf is the address with the default prefix length.
func PrefixOf(a netip.Addr) Prefix { return Prefix{netip.PrefixFrom(a, defaultPrefixBits)} }

// MarshalJSON implements json.Marshaler.
func (p Prefix) MarshalJSON() ([]byte, error) {
	if p.Bits() == defaultPrefixBits {
		return json.Marshal(p.Addr().String())
	}
	return json.Marshal(p.String())
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Prefix) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("address %s: want a string", data)
	}
	value, err := ParsePrefix(text)
	if err != nil {
		return err
	}
	*p = value
	return nil
}
