// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"io"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// TestMain drops the logs, which tell of every crash that the tests make, and looks for what outlives the tests.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}
