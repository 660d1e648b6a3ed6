// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestALargeClusterIsSummedUpLessOften(t *testing.T) {
	t.Parallel()
	for machines, want := range map[int32]time.Duration{0: settle, 10: settle, 1000: 3 * time.Second, 100_000: settleLongest} {
		if got := settleFor(v1alpha1.MachineCounts{Approved: machines}); got != want {
			t.Errorf("%d machines are gathered for %s, want %s", machines, got, want)
		}
	}
}
