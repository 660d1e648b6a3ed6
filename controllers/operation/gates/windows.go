// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"fmt"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/schedule"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Open tells whether a machine may begin at a time: always if there are no windows, else while at least one is open. next
// is when the answer may change: when the last of the open windows closes, or when the first opens. It is zero where that
// never happens.
//
// A window opens at a time of its zone's clock, and stays open for so many hours of real time, however the clock is
// changed meanwhile. One that opens within the hour that is left out in spring opens as much later; one that opens within
// the hour that comes twice in autumn opens twice.
func Open(windows []v1alpha1.OperationWindow, now time.Time) (open bool, next time.Time, err error) {
	if len(windows) == 0 {
		return true, time.Time{}, nil
	}
	var closes, opens time.Time
	for i, window := range windows {
		times, err := schedule.Parse(window.Schedule, window.TimeZone)
		if err != nil {
			return false, time.Time{}, fmt.Errorf("window %d (%s %s): %w", i, window.Schedule, window.TimeZone, err)
		}
		isOpen, when := times.Open(now, window.Duration.Duration)
		switch {
		case isOpen:
			if end := when.Add(window.Duration.Duration); end.After(closes) {
				closes = end
			}
		case !when.IsZero() && (opens.IsZero() || when.Before(opens)):
			opens = when
		}
	}
	if !closes.IsZero() {
		return true, closes, nil
	}
	return false, opens, nil
}
