// SPDX-License-Identifier: Apache-2.0

// Package textdiff tells in what two texts differ, in the unified format of diff(1), for people. It decides nothing: what
// differs between two configurations, and whether that matters, package machineconfig says.
package textdiff

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// Unified is the difference between two texts with three lines around each change; empty if there is none. A text whose
// last line isn't ended counts as if it was.
func Unified(fromName, toName, from, to string) string {
	return udiff.Unified(fromName, toName, ended(from), ended(to))
}

func ended(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// Mark says what a line of a unified difference is.
type Mark int

// What lines there are.
const (
	// Context is the same on both sides.
	Context Mark = iota
	// Header names the texts, or a place in them.
	Header
	// Added and Removed are on one side only.
	Added
	Removed
)

// Marks says for each line of a unified difference what it is. A line that was removed may begin like a header, so the
// headers are taken to be the first two lines.
func Marks(lines []string) []Mark {
	marks := make([]Mark, len(lines))
	for i, line := range lines {
		switch {
		case i < 2 && (strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")), strings.HasPrefix(line, "@@ "):
			marks[i] = Header
		case strings.HasPrefix(line, "+"):
			marks[i] = Added
		case strings.HasPrefix(line, "-"):
			marks[i] = Removed
		}
	}
	return marks
}

// Cut shortens a difference to at most size bytes, at the end of a line.
func Cut(diff string, size int) (short string, cut bool) {
	if len(diff) <= size {
		return diff, false
	}
	return diff[:strings.LastIndexByte(diff[:size], '\n')+1], true
}
