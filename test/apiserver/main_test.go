// SPDX-License-Identifier: Apache-2.0

// Package apiserver_test runs whole API servers and asks them as people and controllers do.
package apiserver_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"

	"maesh.dev/ichor/test/apiserver/harness"
)

// TestMain looks, after all servers and etcd have ended, for goroutines that outlive them.
func TestMain(m *testing.M) {
	harness.RunAsProcess()
	controller.EncryptionConfigFileChangePollDuration = 200 * time.Millisecond
	// The library's check that logs are flushed runs for as long as the process; it is started here to be known.
	if err := healthz.LogHealthz.Check(nil); err != nil {
		fmt.Fprintln(os.Stderr, "check of the logs:", err)
	}
	before := goleak.IgnoreCurrent()
	code := m.Run()
	harness.Close()
	if err := outlive(before); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines outlive the servers:", err)
		code = 1
	}
	os.Exit(code)
}

// outlive waits for goroutines to end; some of the watch cache's wait three seconds for a revision that doesn't come.
func outlive(before goleak.Option) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		// The audit log's writer keeps one goroutine for rotating files for as long as the process, and has no way to end it.
		err := goleak.Find(before, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
