// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"maesh.dev/ichor/test/chaos/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that says again what it is told, line by line.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer connection.Close() //nolint:errcheck // the other side may have been faster
				_, _ = io.Copy(connection, connection)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	return listener.Addr().String()
}

// knock makes a connection to a wire that should end it, and returns how it ended.
func knock(w *wire.Wire) error {
	connection, err := net.DialTimeout("tcp", w.Addr(), patient)
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // the other side may have been faster
	_, err = line{connection, bufio.NewReader(connection)}.hear(patient)
	return err
}

type line struct {
	net.Conn
	reader *bufio.Reader
}

func dial(t *testing.T, w *wire.Wire) line {
	t.Helper()
	connection, err := net.DialTimeout("tcp", w.Addr(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return line{connection, bufio.NewReader(connection)}
}

// say sends a line and returns what comes back within the time.
func (l line) say(text string, patience time.Duration) (string, error) {
	if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := l.Write([]byte(text + "\n")); err != nil {
		return "", err
	}
	return l.hear(patience)
}

func (l line) hear(patience time.Duration) (string, error) {
	if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	return l.reader.ReadString('\n')
}

const (
	patient = 20 * time.Second
	brief   = 200 * time.Millisecond
)

func TestAWireThatIsCutAndMended(t *testing.T) {
	w, err := wire.Start(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	first := dial(t, w)
	if got, err := first.say("whole", patient); err != nil || got != "whole\n" {
		t.Fatalf("a whole wire: %q, %v", got, err)
	}

	w.Set(wire.Silent)
	if got, err := first.say("lost", brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent wire carries %q, %v", got, err)
	}
	second := dial(t, w)
	if got, err := second.say("knocking", brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent wire carries a new connection: %q, %v", got, err)
	}
	w.Set(wire.Whole)
	if got, err := first.hear(patient); err != nil || got != "lost\n" {
		t.Errorf("what was sent into the silence: %q, %v", got, err)
	}
	if got, err := second.hear(patient); err != nil || got != "knocking\n" {
		t.Errorf("who knocked in the silence: %q, %v", got, err)
	}

	w.Set(wire.Broken)
	if got, err := first.hear(patient); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a broken wire: %q, %v, want a reset", got, err)
	}
	if err := knock(w); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection on a broken wire: %v, want its end", err)
	}
	w.Set(wire.Whole)
	if got, err := dial(t, w).say("mended", patient); err != nil || got != "mended\n" {
		t.Errorf("a mended wire: %q, %v", got, err)
	}
}

func TestTheEndOfOneSideReachesTheOther(t *testing.T) {
	w, err := wire.Start(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	l := dial(t, w)
	if _, err := l.Write([]byte("last words\n")); err != nil {
		t.Fatal(err)
	}
	if err := l.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := l.hear(patient); err != nil || got != "last words\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := l.hear(patient); !errors.Is(err, io.EOF) {
		t.Errorf("then %v, want the end", err)
	}
}

func TestNobodyThereIsABrokenWire(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := wire.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := knock(w); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want the end of the connection", err)
	}
}
