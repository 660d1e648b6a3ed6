// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func window(schedule, zone string, duration time.Duration) v1alpha1.OperationWindow {
	return v1alpha1.OperationWindow{Schedule: schedule, TimeZone: zone, Duration: metav1.Duration{Duration: duration}}
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestOpen(t *testing.T) {
	t.Parallel()
	saturday := window("0 2 * * 6", "Europe/Berlin", 4*time.Hour)
	late := window("0 22 * * *", "", 4*time.Hour)
	night := window("30 1 * * *", "Europe/Berlin", 2*time.Hour)
	gap := window("30 2 * * *", "Europe/Berlin", time.Hour)
	for name, tc := range map[string]struct {
		windows []v1alpha1.OperationWindow
		now     string
		open    bool
		next    string
	}{
		"no windows": {now: "2026-11-30T12:00:00Z", open: true},

		// Berlin is an hour ahead of UTC in winter.
		"a second before Saturday's": {windows: []v1alpha1.OperationWindow{saturday}, now: "2026-12-05T00:59:59Z", next: "2026-12-05T01:00:00Z"},
		"when Saturday's opens":      {windows: []v1alpha1.OperationWindow{saturday}, now: "2026-12-05T01:00:00Z", open: true, next: "2026-12-05T05:00:00Z"},
		"when Saturday's closes":     {windows: []v1alpha1.OperationWindow{saturday}, now: "2026-12-05T05:00:00Z", next: "2026-12-12T01:00:00Z"},

		"before midnight": {windows: []v1alpha1.OperationWindow{late}, now: "2026-12-31T23:59:59Z", open: true, next: "2027-01-01T02:00:00Z"},
		"after midnight":  {windows: []v1alpha1.OperationWindow{late}, now: "2027-01-01T01:59:59Z", open: true, next: "2027-01-01T02:00:00Z"},
		"in the morning":  {windows: []v1alpha1.OperationWindow{late}, now: "2027-01-01T02:00:00Z", next: "2027-01-01T22:00:00Z"},

		"of two closed ones the first to open": {windows: []v1alpha1.OperationWindow{saturday, late}, now: "2026-11-30T12:00:00Z", next: "2026-11-30T22:00:00Z"},
		"of two open ones the last to close": {
			windows: []v1alpha1.OperationWindow{saturday, late}, now: "2026-12-05T01:30:00Z", open: true, next: "2026-12-05T05:00:00Z",
		},
		"one of two is enough": {windows: []v1alpha1.OperationWindow{saturday, late}, now: "2026-12-05T04:00:00Z", open: true, next: "2026-12-05T05:00:00Z"},
		"one that opens while it is open": {
			windows: []v1alpha1.OperationWindow{window("0 * * * *", "", 90*time.Minute)}, now: "2026-11-30T12:10:00Z", open: true, next: "2026-11-30T13:30:00Z",
		},
		"29 February": {windows: []v1alpha1.OperationWindow{window("0 0 29 2 *", "", time.Hour)}, now: "2026-11-30T12:00:00Z", next: "2028-02-29T00:00:00Z"},

		// In the night to 28 March 2027 Berlin's clock goes from 02:00 to 03:00, at 01:00 UTC.
		"two hours are two hours in spring":         {windows: []v1alpha1.OperationWindow{night}, now: "2027-03-28T02:29:59Z", open: true, next: "2027-03-28T02:30:00Z"},
		"before an hour that isn't there in spring": {windows: []v1alpha1.OperationWindow{gap}, now: "2027-03-28T01:29:59Z", next: "2027-03-28T01:30:00Z"},
		"an hour that isn't there in spring":        {windows: []v1alpha1.OperationWindow{gap}, now: "2027-03-28T01:30:00Z", open: true, next: "2027-03-28T02:30:00Z"},
		"the day after the hour that isn't there":   {windows: []v1alpha1.OperationWindow{gap}, now: "2027-03-29T00:29:59Z", next: "2027-03-29T00:30:00Z"},
		// In the night to 31 October 2027 it goes from 03:00 back to 02:00, at 01:00 UTC.
		"two hours are two hours in autumn":          {windows: []v1alpha1.OperationWindow{night}, now: "2027-10-31T01:29:59Z", open: true, next: "2027-10-31T01:30:00Z"},
		"the first of two hours of a name in autumn": {windows: []v1alpha1.OperationWindow{gap}, now: "2027-10-31T00:30:00Z", open: true, next: "2027-10-31T01:30:00Z"},
		"the second of them opens it once more":      {windows: []v1alpha1.OperationWindow{gap}, now: "2027-10-31T01:30:00Z", open: true, next: "2027-10-31T02:30:00Z"},
		"after both":                                 {windows: []v1alpha1.OperationWindow{gap}, now: "2027-10-31T02:30:00Z", next: "2027-11-01T01:30:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open, next, err := Open(tc.windows, at(t, tc.now))
			if err != nil || open != tc.open || !next.Equal(at(t, tc.next)) {
				t.Errorf("at %s: want %t %s, got %t %s %v", tc.now, tc.open, tc.next, open, next.UTC().Format(time.RFC3339), err)
			}
		})
	}
}

func TestAWindowThatCanNotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for _, wrong := range []v1alpha1.OperationWindow{window("0 2 * *", "", time.Hour), window("0 2 * * *", "Europe/Atlantis", time.Hour)} {
		if open, _, err := Open([]v1alpha1.OperationWindow{wrong}, at(t, "2026-11-30T12:00:00Z")); open || err == nil {
			t.Errorf("%v: open is %t, error %v", wrong, open, err)
		}
	}
}
