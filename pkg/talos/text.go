// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is the length in bytes of what is kept of any one text that a machine reports.
const maxText = 253

// clean makes a text that a machine reports fit to be stored and shown: valid, printable, without white space around
// it, of bounded length. Firmware pads with NULs and blanks, and an impostor may send anything.
func clean(text string) string {
	text = cut(text, 4*maxText)
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	return strings.TrimSpace(cut(strings.TrimSpace(text), maxText))
}

// cut shortens a text to at most size bytes, at a rune's border.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}

var (
	// difference matches where Talos starts to print the difference of two configurations.
	difference = regexp.MustCompile(`(?i)diff:`)
	// longToken matches what keys, certificates and secrets look like in a machine configuration.
	longToken = regexp.MustCompile(`[A-Za-z0-9+/=_-]{40,}`)
	// joinToken matches bootstrap and trustd tokens.
	joinToken = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}`)
	// localEnd matches the connection's own end in Go's network errors, as in "read tcp 10.0.0.1:52654->10.0.0.11:50000".
	localEnd = regexp.MustCompile(`(?:\[[0-9a-fA-F:.]+(?:%[^\]\s]*)?\]|\d{1,3}(?:\.\d{1,3}){3}):\d{1,5}->`)
)

// maxCondition is the length in bytes of what is written of an error into a status.
const maxCondition = 1024

// Steady makes an error's text fit for a status: the same cause has the same text, so that a status that is written anew
// because of it doesn't differ each time. The port of the connection's own end is left out, and the length is bounded.
func Steady(text string) string {
	text = strings.ToValidUTF8(localEnd.ReplaceAllString(text, ""), "")
	if len(text) > maxCondition {
		text = cut(text, maxCondition) + "…"
	}
	return text
}

// withoutSecrets makes a machine's words about a configuration fit to be shown. Talos appends the difference between two
// configurations, keys included; that and what looks like a key is left out.
// Source: Talos, internal/app/machined/internal/server/v1alpha1 and pkg/machinery/config/configdiff.
func withoutSecrets(text string) string {
	if at := difference.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	// Cleaned first: what is taken out in the middle of a token would put it together again after the search for it.
	text = longToken.ReplaceAllString(cleanLines(text), "***")
	return bounded(joinToken.ReplaceAllString(text, "***"))
}

// oneLine makes a text of several lines one, clean and of bounded length.
func oneLine(text string) string { return bounded(cleanLines(text)) }

func bounded(text string) string { return localEnd.ReplaceAllString(cut(text, 1024), "") }

// cleanLines are the lines of a text, each clean, as one.
func cleanLines(text string) string {
	var lines []string
	for line := range strings.Lines(cut(text, 4096)) {
		if line = clean(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}
