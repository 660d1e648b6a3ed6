// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// restFor is how long a fleet in which nothing happens is watched: each machine's regular look is in it.
const restFor = time.Minute

// rest measures what a fleet costs in which nothing happens.
func (b *bench) rest(ctx context.Context) error {
	say(b.begin, "watching the fleet at rest for %s", restFor)
	before, err := cpuTimes()
	if err != nil {
		return err
	}
	ended := time.NewTimer(restFor)
	defer ended.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended.C:
	}
	after, err := cpuTimes()
	if err != nil {
		return err
	}
	b.figures.restCPU = difference(before, after)
	return nil
}
