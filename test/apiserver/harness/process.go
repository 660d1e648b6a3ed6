// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"maesh.dev/ichor/registry/slots"
)

// processVariable has the settings of a server that runs as a process of its own.
const processVariable = "ICHOR_TEST_APISERVER"

// listenerFile is the file descriptor of the listener that a process inherits: the first after the standard three.
const listenerFile = 3

type processSettings struct {
	Place place
	Grace time.Duration
}

// RunAsProcess is a server, and doesn't return, if the test binary was started as one. TestMain calls it first.
func RunAsProcess() {
	text, asked := os.LookupEnv(processVariable)
	if !asked {
		return
	}
	if err := runAsProcess(text); err != nil {
		fmt.Fprintln(os.Stderr, "test server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runAsProcess(text string) error {
	var settings processSettings
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	options, err := settings.Place.options()
	if err != nil {
		return err
	}
	options.Gate = []slots.Option{slots.WithGrace(settings.Grace)}
	if options.Recommended.SecureServing.Listener, err = net.FileListener(os.NewFile(listenerFile, "listener")); err != nil {
		return fmt.Errorf("take listener: %w", err)
	}
	// Standard input ends with the process that started this one, however that ended.
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return Run(ctx, options)
}

// ServeProcess runs a server in a process of its own and waits until it is ready. It is the next of the environment's
// servers; stopping it is SIGKILL. Slots that nobody stands behind are reaped after the grace.
func (e *Env) ServeProcess(t testing.TB, grace time.Duration) (server int) {
	t.Helper()
	settings, err := json.Marshal(processSettings{Place: e.place(t), Grace: grace})
	if err != nil {
		t.Fatalf("encode settings: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer listener.Close()
	inherited, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatalf("pass on listener: %v", err)
	}
	defer inherited.Close()
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	if err != nil {
		t.Fatalf("make log: %v", err)
	}
	defer log.Close()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), processVariable+"="+string(settings))
	command.ExtraFiles = []*os.File{inherited}
	command.Stdout, command.Stderr = log, log
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatalf("make pipe: %v", err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start server: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	t.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("log of server %d:\n%s", server, text[max(0, len(text)-8<<10):])
		}
	})
	return e.add(t, listener.Addr(), done, func() error {
		defer input.Close()
		if err := command.Process.Kill(); err != nil {
			return fmt.Errorf("kill server: %w", err)
		}
		<-done // that it was killed
		return nil
	})
}
