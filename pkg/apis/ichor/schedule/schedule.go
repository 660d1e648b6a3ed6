// SPDX-License-Identifier: Apache-2.0

// Package schedule understands the schedules of the API: five cron fields and a time zone, as a CronJob has them. It is
// the one place that knows the parser, and it brings the time zone database along, for images that have none.
package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata"

	cron "github.com/netresearch/go-cron"
)

// maxSearch is how many years ahead a time is looked for; 29 February comes at least once in eight.
const maxSearch = 9

// maxLength is longer than any sensible schedule, and keeps the parser's work small.
const maxLength = 256

var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).WithMaxSearchYears(maxSearch)

// epoch is when a schedule is asked for its first time, to find those that never come.
var epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// Schedule is a parsed schedule.
type Schedule struct {
	times    cron.Schedule
	location *time.Location
}

// Parse reads five cron fields (minute, hour, day of the month, month, day of the week), and the name of a time zone in
// the IANA database; an empty one is UTC.
func Parse(fields, timeZone string) (Schedule, error) {
	location, err := Location(timeZone)
	if err != nil {
		return Schedule{}, err
	}
	times, err := ParseFields(fields)
	if err != nil {
		return Schedule{}, err
	}
	return Schedule{times: times, location: location}, nil
}

// Location is the time zone of that name; the empty one is UTC.
func Location(timeZone string) (*time.Location, error) {
	if strings.EqualFold(timeZone, "local") {
		return nil, errors.New("must be a time zone's name, such as Europe/Berlin; the server's own isn't one")
	}
	location, err := time.LoadLocation(timeZone)
	if err != nil {
		return nil, errors.New("must be a time zone's name in the IANA database, such as Europe/Berlin")
	}
	return location, nil
}

// ParseFields reads the five cron fields alone.
func ParseFields(fields string) (cron.Schedule, error) {
	switch {
	case len(fields) > maxLength:
		return nil, fmt.Errorf("must be at most %d characters long", maxLength)
	case strings.Contains(fields, "="):
		return nil, errors.New("must be five cron fields without a time zone; that has a field of its own")
	case len(strings.Fields(fields)) != 5:
		return nil, fmt.Errorf("must be five cron fields (minute, hour, day of the month, month, day of the week), and there are %d", len(strings.Fields(fields)))
	}
	times, err := parser.Parse(fields)
	if err != nil {
		return nil, fmt.Errorf("must be five cron fields (minute, hour, day of the month, month, day of the week): %w", err)
	}
	if times.Next(epoch).IsZero() {
		return nil, errors.New("is a time that never comes")
	}
	return times, nil
}

// Next is the first time after the given one; zero if there is none in the next years.
func (s Schedule) Next(after time.Time) time.Time {
	return s.times.Next(after.In(s.location))
}

// Open tells whether a window that opens by the schedule and stays open for the duration is open at a time, and since
// when; otherwise when it opens next.
func (s Schedule) Open(at time.Time, duration time.Duration) (open bool, when time.Time) {
	// The last opening that could still be going on.
	opening := s.Next(at.Add(-duration))
	if !opening.IsZero() && !opening.After(at) {
		for next := s.Next(opening); !next.IsZero() && !next.After(at); next = s.Next(next) {
			opening = next
		}
		return true, opening
	}
	return false, opening
}
