// SPDX-License-Identifier: Apache-2.0

package nodestream

import (
	"bytes"
	"io"
)

// maxKept bounds what lastLines remembers, in bytes: a kernel's ring buffer has a megabyte or two.
const maxKept = 8 << 20

// lastLines passes on the last lines of what it is given, once it is complete. Talos doesn't do it for the kernel's
// messages.
type lastLines struct {
	count int
	kept  bytes.Buffer
}

// Write keeps what may be among the last lines.
func (l *lastLines) Write(piece []byte) (int, error) {
	l.kept.Write(piece)
	if over := l.kept.Len() - maxKept; over > 0 {
		l.kept.Next(over)
	}
	return len(piece), nil
}

// flush passes the last lines on.
func (l *lastLines) flush(to io.Writer) error {
	text := l.kept.Bytes()
	from := len(text)
	if from > 0 && text[from-1] == '\n' {
		from--
	}
	for range l.count {
		if from = bytes.LastIndexByte(text[:max(from, 0)], '\n'); from < 0 {
			break
		}
	}
	if l.count == 0 {
		return nil
	}
	_, err := to.Write(text[from+1:])
	return err
}
