// SPDX-License-Identifier: Apache-2.0

package operations

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// maxLine is the longest line of an etcd's log that is read.
const maxLine = 1 << 20

// Missed are the times at which a member of etcd wasn't there, by its own log: from the signal that ended it until the next
// process served clients. Who is killed writes nothing down, so the times of kills are asked for; without one, the last line of
// the process counts.
func Missed(machine string, log []byte, kills []time.Time) []Span {
	var spans []Span
	var last, since time.Time
	up := false
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var line struct {
			TS  string `json:"ts"`
			Msg string `json:"msg"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		at, err := time.Parse("2006-01-02T15:04:05.999999Z0700", line.TS)
		if err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(line.Msg, "received signal") || strings.HasPrefix(line.Msg, "closing etcd server"):
			if up {
				up, since = false, at
			}
		case line.Msg == "Running: ":
			if up { // the one before was killed
				up, since = false, killedAt(last, at, kills)
			}
		case line.Msg == "ready to serve client requests" && !up:
			if !since.IsZero() {
				spans = append(spans, Span{Machine: machine, From: since, To: at})
			}
			up = true
		}
		last = at
	}
	if !up && !since.IsZero() {
		spans = append(spans, Span{Machine: machine, From: since})
	}
	return spans
}

// killedAt is the kill between two times; the first of these if there is none.
func killedAt(after, before time.Time, kills []time.Time) time.Time {
	for _, kill := range kills {
		if kill.After(after) && kill.Before(before) {
			return kill
		}
	}
	return after
}
