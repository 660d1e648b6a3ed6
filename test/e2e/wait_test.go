// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"testing"
	"time"
)

const (
	// look is the time between two looks at a condition.
	look = 250 * time.Millisecond
	// slowness is how much longer everything may take where CI is set.
	slowness = 4
)

// bound is how long something may take on this machine.
func bound(d time.Duration) time.Duration {
	if os.Getenv("CI") != "" {
		return slowness * d
	}
	return d
}

// eventually waits until a condition holds; its last fault is shown if it never does.
func eventually(t *testing.T, patience time.Duration, condition func() error) {
	t.Helper()
	timer := time.NewTimer(bound(patience))
	defer timer.Stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-timer.C:
			t.Fatalf("not within %s: %v", bound(patience), err)
		case <-ticker.C:
		}
	}
}
