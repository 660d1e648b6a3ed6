// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/pkg/talos"
)

// config is large enough not to hide in a frame's overhead.
var config = []byte(strings.Repeat("# a machine configuration\n", 400))

type applyResponse = machineapi.ApplyConfigurationResponse

func accept(mode machineapi.ApplyConfigurationRequest_Mode, details string, warnings ...string) func(*machineapi.ApplyConfigurationRequest) (*applyResponse, error) {
	return func(*machineapi.ApplyConfigurationRequest) (*applyResponse, error) {
		return &applyResponse{Messages: []*machineapi.ApplyConfiguration{{Mode: mode, ModeDetails: details, Warnings: warnings}}}, nil
	}
}

func TestApplyConfigurationIsTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode   talos.ApplyMode
		answer func(*machineapi.ApplyConfigurationRequest) (*applyResponse, error)
		want   talos.ApplyResult
		sent   machineapi.ApplyConfigurationRequest_Mode
	}{
		"without a reboot": {
			talos.ApplyAuto, accept(machineapi.ApplyConfigurationRequest_NO_REBOOT, "Applied configuration without a reboot", "use of X is deprecated"),
			talos.ApplyResult{Details: "Applied configuration without a reboot", Warnings: []string{"use of X is deprecated"}},
			machineapi.ApplyConfigurationRequest_AUTO,
		},
		"with a reboot, and the difference is kept back": {
			talos.ApplyAuto, accept(machineapi.ApplyConfigurationRequest_REBOOT, "Applied configuration with a reboot: this config change can't be applied in immediate mode\ndiff: token: SECRET"),
			talos.ApplyResult{Rebooting: true, Details: "Applied configuration with a reboot: this config change can't be applied in immediate mode"},
			machineapi.ApplyConfigurationRequest_AUTO,
		},
		"without a word about a reboot, as 1.12 does in maintenance": {
			talos.ApplyAuto, accept(0, ""), talos.ApplyResult{}, machineapi.ApplyConfigurationRequest_AUTO,
		},
		"staged": {
			talos.ApplyStaged, accept(machineapi.ApplyConfigurationRequest_STAGED, "Staged"), talos.ApplyResult{Details: "Staged"},
			machineapi.ApplyConfigurationRequest_STAGED,
		},
		"never with a reboot": {
			talos.ApplyNoReboot, accept(machineapi.ApplyConfigurationRequest_NO_REBOOT, ""), talos.ApplyResult{},
			machineapi.ApplyConfigurationRequest_NO_REBOOT,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := maintenanceNode(t)
			node.onApply = tc.answer
			got, err := node.dialMaintenance(t).ApplyConfiguration(t.Context(), config, tc.mode)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if len(node.applied) != 1 || node.applied[0].GetMode() != tc.sent || string(node.applied[0].GetData()) != string(config) || node.applied[0].GetDryRun() {
				t.Errorf("the machine got %d requests, the first of mode %s", len(node.applied), node.applied[0].GetMode())
			}
		})
	}
}

func TestApplyConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for code, maybe := range map[codes.Code]bool{
		codes.InvalidArgument: false, codes.FailedPrecondition: false, codes.PermissionDenied: false, codes.Unimplemented: false,
		codes.Unknown: false, codes.Unavailable: true, codes.Internal: true, codes.DeadlineExceeded: true, codes.Canceled: true,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			node := maintenanceNode(t)
			node.onApply = func(*machineapi.ApplyConfigurationRequest) (*applyResponse, error) {
				return nil, status.Error(code, "install instructions are required\ntoken abcdef.0123456789abcdef, key MC4CAQAwBQYDK2VwBCIEIAg1k3kkVnXqXqXqXqXqXqXq\ndiff: SECRET")
			}
			_, err := node.dialMaintenance(t).ApplyConfiguration(t.Context(), config, talos.ApplyAuto)
			var refused *talos.ApplyError
			if !errors.As(err, &refused) {
				t.Fatalf("got error %v, want an ApplyError", err)
			}
			if !refused.Delivered || refused.MaybeDelivered != maybe {
				t.Errorf("delivered %t, maybe %t; want true, %t", refused.Delivered, refused.MaybeDelivered, maybe)
			}
			if text := err.Error(); !strings.Contains(text, "install instructions are required") ||
				strings.Contains(text, "SECRET") || strings.Contains(text, "0123456789abcdef") || strings.Contains(text, "MC4C") {
				t.Errorf("the message lacks the reason or shows a secret: %v", text)
			}
		})
	}
}

func TestApplyConfigurationIsNotSent(t *testing.T) {
	t.Parallel()
	node := maintenanceNode(t)
	node.onApply = accept(machineapi.ApplyConfigurationRequest_NO_REBOOT, "")
	unpinned, err := talos.NewDialer(node.options()).DialMaintenance(t.Context(), loopback, "")
	if err != nil {
		t.Fatal(err)
	}
	defer unpinned.Close()
	pinned := node.dialMaintenance(t)
	for name, try := range map[string]func() error{
		"over a connection without a pin": func() error {
			_, err := unpinned.ApplyConfiguration(t.Context(), config, talos.ApplyAuto)
			return err
		},
		"without a mode": func() error {
			_, err := pinned.ApplyConfiguration(t.Context(), config, 0)
			return err
		},
		"when empty": func() error {
			_, err := pinned.ApplyConfiguration(t.Context(), nil, talos.ApplyAuto)
			return err
		},
		"when its time is over": func() error {
			_, err := pinned.ApplyConfiguration(cancelled(t), config, talos.ApplyAuto)
			return err
		},
	} {
		var refused *talos.ApplyError
		if err := try(); !errors.As(err, &refused) || refused.Delivered || refused.MaybeDelivered {
			t.Errorf("%s: got error %v, want an ApplyError that says it wasn't sent", name, err)
		}
	}
	if len(node.applied) != 0 {
		t.Errorf("the machine got %d configurations", len(node.applied))
	}
}

// stallingListener lets connections through until stalled; then nothing more is read, so that a large request gets stuck
// on its way, and the connection breaks.
type stallingListener struct {
	net.Listener
	mu    sync.Mutex
	conns []*stallingConn
}

type stallingConn struct {
	net.Conn
	limit chan int // bytes that may still be read; absent: all
	left  int
	cut   bool
}

func (l *stallingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	stalling := &stallingConn{Conn: conn, limit: make(chan int, 1)}
	l.mu.Lock()
	l.conns = append(l.conns, stalling)
	l.mu.Unlock()
	return stalling, nil
}

func (c *stallingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case c.left = <-c.limit:
		c.cut = true
	default:
	}
	if c.cut {
		if c.left -= n; c.left < 0 {
			_ = c.Conn.Close()
			return 0, net.ErrClosed
		}
	}
	return n, err
}

func TestApplyConfigurationCutOffOnItsWay(t *testing.T) {
	t.Parallel()
	// More than HTTP/2's first window (64 KiB) and than a socket's buffers take, so the rest is still with the client.
	large := []byte(strings.Repeat("x", 24<<20))
	var listener *stallingListener
	node := startNode(t, newAuthority(t, "").server(t, maintenanceName), nil, func(l net.Listener) net.Listener {
		listener = &stallingListener{Listener: l}
		return listener
	})
	node.onApply = accept(machineapi.ApplyConfigurationRequest_NO_REBOOT, "")
	connection := node.dialMaintenance(t)
	if _, err := connection.Stage(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener.conns[0].limit <- 4096
	_, err := connection.ApplyConfiguration(t.Context(), large, talos.ApplyAuto)
	var failed *talos.ApplyError
	if !errors.As(err, &failed) || failed.Delivered || failed.MaybeDelivered {
		t.Errorf("got error %v, want an ApplyError that says it wasn't sent", err)
	}
	if len(node.applied) != 0 {
		t.Errorf("the machine acted on a request that was cut off")
	}
}

func TestApplyConfigurationAnswerIsLost(t *testing.T) {
	t.Parallel()
	closed, gone := make(chan struct{}), make(chan struct{})
	node := startNode(t, newAuthority(t, "").server(t, maintenanceName), nil, func(l net.Listener) net.Listener {
		return &countingListener{Listener: l, accepted: new(atomic.Int64), closeOn: closed}
	})
	node.onApply = func(*machineapi.ApplyConfigurationRequest) (*applyResponse, error) {
		close(closed)
		<-gone
		return &applyResponse{}, nil
	}
	connection := node.dialMaintenance(t)
	ctx, cancel := context.WithTimeout(t.Context(), quickBound)
	defer cancel()
	_, err := connection.ApplyConfiguration(ctx, config, talos.ApplyAuto)
	close(gone)
	var failed *talos.ApplyError
	if !errors.As(err, &failed) || !failed.MaybeDelivered {
		t.Errorf("got error %v, want an ApplyError that doesn't know", err)
	}
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	connection := node.dialConfigured(t, credentials)
	for name, tc := range map[string]struct {
		answer       error
		already, not bool
	}{
		"started":             {nil, false, false},
		"there is data":       {status.Error(codes.AlreadyExists, "etcd data directory is not empty"), true, false},
		"too early":           {status.Error(codes.FailedPrecondition, "bootstrap is not available yet"), false, true},
		"not on this machine": {status.Error(codes.Unimplemented, "bootstrap is only available on control plane nodes"), false, false},
	} {
		node.onBootstrap = func() error { return tc.answer }
		err := connection.Bootstrap(t.Context())
		if (err == nil) != (tc.answer == nil) || talos.IsAlreadyBootstrapped(err) != tc.already || talos.IsNotYet(err) != tc.not {
			t.Errorf("%s: got %v, already %t, not yet %t", name, err, talos.IsAlreadyBootstrapped(err), talos.IsNotYet(err))
		}
		if err != nil && (strings.Contains(err.Error(), "rpc error") || !strings.Contains(err.Error(), status.Convert(tc.answer).Message())) {
			t.Errorf("%s: the message isn't for people: %v", name, err)
		}
	}
}
