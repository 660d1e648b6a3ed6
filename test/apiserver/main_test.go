// SPDX-License-Identifier: Apache-2.0

// Package apiserver_test runs whole API servers and asks them as people and controllers do.
package apiserver_test

import (
	"os"
	"testing"

	"maesh.dev/ichor/test/apiserver/harness"
)

func TestMain(m *testing.M) {
	code := m.Run()
	harness.Close()
	os.Exit(code)
}
