// SPDX-License-Identifier: Apache-2.0

package identity

import "strings"

// junkUUIDs are what firmware vendors ship where a UUID should have been burnt in. UUIDs of one repeated digit are junk
// too and not listed.
var junkUUIDs = map[string]bool{
	"00010203-0405-0607-0809-0a0b0c0d0e0f": true,
	"00020003-0004-0005-0006-000700080009": true, // the next line in the other byte order
	"03000200-0400-0500-0006-000700080009": true,
	"00112233-4455-6677-8899-aabbccddeeff": true,
	"01020304-0506-0708-090a-0b0c0d0e0f10": true,
	"01234567-89ab-cdef-0123-456789abcdef": true,
	"11111111-2222-3333-4444-555555555555": true,
	"11223344-5566-7788-99aa-bbccddeeff00": true,
	"12345678-1234-1234-1234-123456789012": true,
	"12345678-1234-1234-1234-123456789abc": true,
	"12345678-1234-5678-1234-567812345678": true,
	"12345678-1234-5678-90ab-cddeefaabbcc": true,
	"12345678-9012-3456-7890-123456789012": true,
	"4c4c4544-0000-2010-8020-80c04f202020": true, // Dell without a service tag
	"fefefefe-fefe-fefe-fefe-fefefefefefe": true,
}

// junkSerials are what firmware vendors ship where a serial number should have been entered, in lower case.
var junkSerials = map[string]bool{
	"0123456789":               true,
	"1234567890":               true,
	"123456789":                true,
	"12345678":                 true,
	"chassis serial number":    true,
	"default":                  true,
	"default string":           true,
	"empty":                    true,
	"n/a":                      true,
	"na":                       true,
	"none":                     true,
	"not applicable":           true,
	"not available":            true,
	"not specified":            true,
	"o.e.m.":                   true,
	"oem":                      true,
	"serial":                   true,
	"serial number":            true,
	"system serial number":     true,
	"to be filled by o.e.m.":   true,
	"to be filled by oem":      true,
	"undefined":                true,
	"unknown":                  true,
	"unspecified":              true,
	"unspecified system s/n":   true,
	"xxxxxxxxxx":               true,
	"system_serial_number":     true,
	"filled by o.e.m.":         true,
	"default system serial no": true,
}

// IsJunkUUID tells that a text can't be what tells a machine from others: it is empty, no UUID, one repeated digit (so
// all zeros and all ones), or known as a vendor's default.
func IsJunkUUID(text string) bool {
	uuid := normalizeUUID(text)
	if !IsUUID(uuid) || junkUUIDs[uuid] {
		return true
	}
	digits := strings.ReplaceAll(uuid, "-", "")
	return isRepeated(digits)
}

// IsJunkSerial tells that a serial number can't be what tells a machine from others.
func IsJunkSerial(text string) bool { return usableSerial(text) == "" }

// usableSerial is the serial number, empty if it is junk.
func usableSerial(text string) string {
	serial := strings.TrimSpace(text)
	if serial == "" || junkSerials[strings.ToLower(serial)] || isRepeated(serial) {
		return ""
	}
	return serial
}

func normalizeUUID(text string) string { return strings.ToLower(strings.TrimSpace(text)) }

// IsUUID tells whether a text in lower case is 8-4-4-4-12 hexadecimal digits.
func IsUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// isRepeated tells whether a text, white space and hyphens aside, is one character again and again.
func isRepeated(text string) bool {
	return strings.Trim(text, text[:1]+" -") == ""
}
