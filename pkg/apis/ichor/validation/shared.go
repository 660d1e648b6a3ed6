// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"encoding/base64"
	"net/netip"
	"regexp"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// privateKey is how every PEM block of a private key begins.
var privateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)

// encodedPEM is how every PEM block begins in base64, as Talos' documents and Helm values carry keys.
var encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]+`)

// holdsPrivateKey looks for a private key in PEM, plain, in a JSON string or in base64.
func holdsPrivateKey(text []byte) bool {
	if privateKey.Match(bytes.ReplaceAll(text, []byte(`\n`), []byte("\n"))) {
		return true
	}
	for _, encoded := range encodedPEM.FindAll(text, -1) {
		encoded = encoded[:len(encoded)/4*4]
		if plain, err := base64.StdEncoding.DecodeString(string(encoded)); err == nil && privateKey.Match(plain) {
			return true
		}
	}
	return false
}

// NoPrivateKey refuses a private key where anybody who may read the object would see it.
func NoPrivateKey(text []byte, path *field.Path) field.ErrorList {
	if !holdsPrivateKey(text) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "holds a private key, which everybody who may read this object could read; put it into a Secret")}
}

// immutable refuses a change.
func immutable[T any](value, was T, path *field.Path, why string) field.ErrorList {
	if apiequality.Semantic.DeepEqual(value, was) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, why)}
}

// frozen refuses any change of a whole part of an object, without repeating it.
func frozen[T any](value, was T, path *field.Path, why string) field.ErrorList {
	if apiequality.Semantic.DeepEqual(value, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, why)}
}

// oneOf refuses what isn't one of the values.
func oneOf[T ~string](value T, path *field.Path, values ...T) field.ErrorList {
	for _, known := range values {
		if value == known {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, values)}
}

// between refuses a number outside the range, which includes both ends.
func between(value, least, most int32, path *field.Path) field.ErrorList {
	if msgs := utilvalidation.IsInRange(int(value), int(least), int(most)); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(path, value, strings.Join(msgs, "; "))}
	}
	return nil
}

// tooLong refuses text of more bytes than most.
func tooLong(text string, most int, path *field.Path) field.ErrorList {
	if len(text) > most {
		return field.ErrorList{field.TooLong(path, text, most)}
	}
	return nil
}

// name refuses what one of Kubernetes' rules for names doesn't allow.
func name(text string, path *field.Path, rule func(string) []string) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if msgs := rule(text); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(path, text, strings.Join(msgs, "; "))}
	}
	return nil
}

// ipAddress parses an address without zone.
func ipAddress(text string, path *field.Path) (netip.Addr, field.ErrorList) {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return address, field.ErrorList{field.Invalid(path, text, "must be an IP address, such as 10.0.0.10")}
	case address.Zone() != "" || address.Is4In6() || address.IsUnspecified() || address.IsMulticast():
		return address, field.ErrorList{field.Invalid(path, text, "must be the IP address of one host, without a zone")}
	}
	return address, nil
}

// network parses a range of addresses, written with its first address.
func network(text string, path *field.Path) (netip.Prefix, field.ErrorList) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return prefix, field.ErrorList{field.Invalid(path, text, "must be a network in CIDR notation, such as 10.0.0.0/24")}
	case prefix.Addr().Is4In6():
		return prefix, field.ErrorList{field.Invalid(path, text, "must be an IPv4 or an IPv6 network, not one within the other")}
	case prefix.Masked() != prefix:
		return prefix, field.ErrorList{field.Invalid(path, text, "must begin with the network's first address: "+prefix.Masked().String())}
	}
	return prefix, nil
}

// fingerprint refuses what isn't base64 of a SHA-256.
func fingerprint(text string, path *field.Path) field.ErrorList {
	if sum, err := base64.StdEncoding.DecodeString(text); err != nil || len(sum) != 32 {
		return field.ErrorList{field.Invalid(path, text, "must be a fingerprint as the machine's console prints it: base64 of a SHA-256")}
	}
	return nil
}
