// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"maesh.dev/ichor/test/localstack/balancer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// named serves connections with its own name and then echoes lines.
func named(t *testing.T, name string) net.Listener {
	t.Helper()
	listener := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close() //nolint:errcheck // test
				fmt.Fprintln(connection, name)
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func start(t *testing.T, config balancer.Config) *balancer.Balancer {
	t.Helper()
	config.Logger, config.Interval = slog.New(slog.DiscardHandler), 5*time.Millisecond
	b := balancer.Start(listen(t), config)
	t.Cleanup(b.Close)
	return b
}

// eventually waits for a condition with a bound.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not within 10 s: %s", what)
		case <-tick.C:
		}
	}
}

// greeting connects and returns the first line with the connection.
func greeting(t *testing.T, b *balancer.Balancer) (string, net.Conn, *bufio.Reader) {
	t.Helper()
	connection, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	line, err := reader.ReadString('\n')
	if err != nil {
		return "", connection, reader
	}
	return line[:len(line)-1], connection, reader
}

func TestConnectionsAreSpreadOverTheHealthy(t *testing.T) {
	a, c := named(t, "a"), named(t, "c")
	down := listen(t)
	if err := down.Close(); err != nil {
		t.Fatal(err)
	}
	b := start(t, balancer.Config{Backends: []string{a.Addr().String(), down.Addr().String(), c.Addr().String()}})
	eventually(t, "both are healthy", func() bool { return len(b.Healthy()) == 2 })
	got := map[string]int{}
	for range 6 {
		name, connection, _ := greeting(t, b)
		got[name]++
		_ = connection.Close()
	}
	if diff := cmp.Diff(map[string]int{"a": 3, "c": 3}, got); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
}

func TestTheFirstHealthyIsPreferred(t *testing.T) {
	a, c := named(t, "a"), named(t, "c")
	var fail atomic.Bool
	b := start(t, balancer.Config{
		Backends: []string{a.Addr().String(), c.Addr().String()},
		Policy:   balancer.FirstHealthy,
		Check: func(_ context.Context, address string) error {
			if fail.Load() && address == a.Addr().String() {
				return errors.New("told to fail")
			}
			return nil
		},
	})
	eventually(t, "both are healthy", func() bool { return len(b.Healthy()) == 2 })
	name, _, reader := greeting(t, b)
	if name != "a" {
		t.Fatalf("connected to %q, want a", name)
	}
	fail.Store(true)
	if _, err := reader.ReadByte(); err == nil {
		t.Error("the connection to a backend that failed its checks goes on")
	}
	if name, _, _ := greeting(t, b); name != "c" {
		t.Errorf("connected to %q, want c", name)
	}
	fail.Store(false)
	eventually(t, "a is back", func() bool { return len(b.Healthy()) == 2 })
	if name, _, _ := greeting(t, b); name != "a" {
		t.Errorf("connected to %q, want a", name)
	}
}

func TestBytesGoBothWays(t *testing.T) {
	b := start(t, balancer.Config{Backends: []string{named(t, "a").Addr().String()}})
	eventually(t, "it is healthy", func() bool { return len(b.Healthy()) == 1 })
	_, connection, reader := greeting(t, b)
	fmt.Fprintln(connection, "hello")
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(reader)
	if err != nil || string(got) != "hello\n" {
		t.Errorf("echo is %q (%v), want hello", got, err)
	}
}

func TestWithoutBackendsConnectionsAreClosed(t *testing.T) {
	b := start(t, balancer.Config{})
	if name, _, _ := greeting(t, b); name != "" {
		t.Errorf("connected to %q", name)
	}
}
