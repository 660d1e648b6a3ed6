// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ fields, zone, want string }{
		"every six hours":              {fields: "0 */6 * * *"},
		"Saturdays in Berlin":          {fields: "0 2 * * 6", zone: "Europe/Berlin"},
		"names of days and months":     {fields: "30 4 * JAN-MAR MON"},
		"29 February":                  {fields: "0 0 29 2 *"},
		"nothing":                      {fields: "", want: "five cron fields"},
		"four fields":                  {fields: "0 0 * *", want: "there are 4"},
		"six fields":                   {fields: "0 0 0 * * *", want: "there are 6"},
		"minute 60":                    {fields: "60 0 * * *", want: "five cron fields"},
		"a word":                       {fields: "a b c d e", want: "five cron fields"},
		"a macro":                      {fields: "@daily", want: "there are 1"},
		"a zone in the fields":         {fields: "TZ=Europe/Berlin 0 0 * * *", want: "without a time zone"},
		"a zone and nothing else":      {fields: "CRON_TZ=", want: "without a time zone"},
		"30 February":                  {fields: "0 0 30 2 *", want: "never comes"},
		"endless":                      {fields: strings.Repeat("1,", 500) + "1 * * * *", want: "at most"},
		"a zone that isn't":            {fields: "0 0 * * *", zone: "Europe/Atlantis", want: "IANA"},
		"the server's zone":            {fields: "0 0 * * *", zone: "Local", want: "server's own"},
		"a way out of the zones":       {fields: "0 0 * * *", zone: "../../etc/passwd", want: "IANA"},
		"days of month and week":       {fields: "0 0 1 * 1"},
		"a step of nothing is refused": {fields: "*/0 * * * *", want: "five cron fields"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(tc.fields, tc.zone)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse(%q, %q): want %q, got %v", tc.fields, tc.zone, tc.want, err)
			}
		})
	}
}

func TestNextIsInItsTimeZone(t *testing.T) {
	t.Parallel()
	schedule, err := Parse("0 2 * * 6", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	// 30 November 2026 is a Monday; Berlin is an hour ahead in winter.
	if got, want := schedule.Next(at(t, "2026-11-30T12:00:00Z")), at(t, "2026-12-05T01:00:00Z"); !got.Equal(want) {
		t.Errorf("want %s, got %s", want, got)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	schedule, err := Parse("0 2 * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		at, when string
		duration time.Duration
		open     bool
	}{
		"before":                            {at: "2026-11-30T01:59:59Z", duration: 4 * time.Hour, when: "2026-11-30T02:00:00Z"},
		"when it opens":                     {at: "2026-11-30T02:00:00Z", duration: 4 * time.Hour, open: true, when: "2026-11-30T02:00:00Z"},
		"in the middle":                     {at: "2026-11-30T04:00:00Z", duration: 4 * time.Hour, open: true, when: "2026-11-30T02:00:00Z"},
		"when it has closed":                {at: "2026-11-30T06:00:00Z", duration: 4 * time.Hour, when: "2026-12-01T02:00:00Z"},
		"one that opens before it closes":   {at: "2026-11-30T03:00:00Z", duration: 36 * time.Hour, open: true, when: "2026-11-30T02:00:00Z"},
		"the last one that is still open":   {at: "2026-11-30T01:00:00Z", duration: 36 * time.Hour, open: true, when: "2026-11-29T02:00:00Z"},
		"past midnight of a longer opening": {at: "2026-12-01T00:30:00Z", duration: 23 * time.Hour, open: true, when: "2026-11-30T02:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open, when := schedule.Open(at(t, tc.at), tc.duration)
			if open != tc.open || !when.Equal(at(t, tc.when)) {
				t.Errorf("want %t %s, got %t %s", tc.open, tc.when, open, when)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0 */6 * * *", "TZ= 0 0 * * *", "*/0 * * * *", "1-0 * * * *", "0 0 31 2 *", "L W # ? *"} {
		f.Add(seed, "UTC")
	}
	f.Fuzz(func(t *testing.T, fields, zone string) {
		schedule, err := Parse(fields, zone)
		if err == nil && !schedule.Next(epoch).After(epoch) {
			t.Errorf("Parse(%q, %q) has no next time", fields, zone)
		}
	})
}
