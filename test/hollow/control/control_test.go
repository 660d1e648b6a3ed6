// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"maesh.dev/ichor/test/hollow/control"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/host"
	"maesh.dev/ichor/test/hollow/loopback"
	"maesh.dev/ichor/test/hollow/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// room is a hosted fleet with its socket.
type room struct {
	fleet  *fleet.Fleet
	host   *host.Host
	server *control.Server
	client *control.Client
	socket string
}

// first is the name of the first machine.
func (r *room) first() string { return r.fleet.Machines[0].Name }

func start(t *testing.T, machines int) *room {
	t.Helper()
	block, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := block.Close(); err != nil {
			t.Error(err)
		}
	})
	// The path of a socket is short, that of a test's folder is not.
	dir, err := os.MkdirTemp("", "hollow")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	fast := fleet.Duration(10 * time.Millisecond)
	f, err := fleet.Generate(fleet.GenerateOptions{
		Machines: machines, First: block.Addr(1), Timings: fleet.Timings{Boot: fast, Install: fast, Reboot: fast, Pull: fast, FatalPause: fast},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &room{fleet: f, socket: filepath.Join(dir, "c.sock")}
	listener, err := control.Listen(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	r.host, err = host.Start(host.Options{Fleet: f, Dir: dir})
	if err != nil {
		t.Fatal(errors.Join(err, listener.Close()))
	}
	t.Cleanup(r.host.Close)
	r.server = control.Serve(listener, r.host)
	t.Cleanup(func() {
		if err := r.server.Close(); err != nil {
			t.Error(err)
		}
	})
	r.client = control.NewClient(r.socket)
	return r
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hollowtest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// await waits until a machine is as wanted.
func (r *room) await(t *testing.T, name string, condition func(node.Status) bool) node.Status {
	t.Helper()
	n, err := r.host.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := n.WaitFor(bounded(t), condition)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheSocketShowsTwentyMachinesToItsOwnerAndIsGoneAtTheEnd(t *testing.T) {
	t.Parallel()
	r := start(t, 20)
	info, err := os.Stat(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %o, want 600", info.Mode().Perm())
	}
	for i := range r.fleet.Machines {
		r.await(t, r.fleet.Machines[i].Name, node.InMaintenance)
	}
	list, err := r.client.All(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(r.fleet.Machines) {
		t.Fatalf("%d machines, want %d", len(list), len(r.fleet.Machines))
	}
	for i, s := range list {
		if s.Name != r.fleet.Machines[i].Name || !node.InMaintenance(s) || s.Fingerprint == "" {
			t.Errorf("machine %d: %+v", i, s)
		}
	}
	if err := r.server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestAMachineDoesWhatItIsTold(t *testing.T) {
	t.Parallel()
	r := start(t, 1)
	first := r.first()
	ctx := bounded(t)
	do := func(verb string, args ...string) {
		t.Helper()
		if _, err := r.client.Do(ctx, verb, first, args...); err != nil {
			t.Fatalf("%s %v: %v", verb, args, err)
		}
	}
	before := r.await(t, first, node.InMaintenance)
	do("certificate")
	r.await(t, first, func(s node.Status) bool {
		return node.InMaintenance(s) && s.Fingerprint != "" && s.Fingerprint != before.Fingerprint
	})
	do("power-off")
	if s, err := r.client.Status(ctx, first); err != nil || !node.IsOff(s) {
		t.Errorf("after power-off: %+v, %v", s, err)
	}
	do("power-on")
	after := r.await(t, first, node.InMaintenance)
	if after.BootID == before.BootID {
		t.Error("it is the same boot as before the power cut")
	}
	moved := r.fleet.Machines[0].Addr().Next()
	do("change-address", moved.String())
	r.await(t, first, func(s node.Status) bool { return node.InMaintenance(s) && s.Address == moved })
	for _, command := range [][]string{
		{"hang-tls", "on"}, {"hang-tls", "off"}, {"fail-install", "on"}, {"fail-install", "off"}, {"oversize", "on"}, {"oversize", "off"}, {"slow", "1s"}, {"slow", "0s"}, {"late-apply", "1s"}, {"drop-apply"},
		{"swap-nic", r.fleet.Machines[0].Links[0].Name, "02:00:00:00:00:01"}, {"present-uuid", "not even a UUID & ?"},
		{"swap-disk", "/dev/nvme0n1", "1TB", "NEW 1"}, {"wipe"},
	} {
		do(command[0], command[1:]...)
	}
	r.await(t, first, node.InMaintenance)
	if applies, err := r.client.Applies(ctx, first); err != nil || applies == nil || len(applies) != 0 {
		t.Errorf("applies: %v, %v; want none", applies, err)
	}
}

func TestMistakesAreExplained(t *testing.T) {
	t.Parallel()
	r := start(t, 1)
	first := r.first()
	r.await(t, first, node.InMaintenance)
	for _, c := range []struct {
		name, verb, machine string
		args                []string
		code                int
		text                string
	}{
		{"a machine that isn't there", "status", "nobody", nil, http.StatusNotFound, "no such machine"},
		{"an argument too few", "slow", first, nil, http.StatusBadRequest, "DURATION"},
		{"an argument too many", "wipe", first, []string{"now"}, http.StatusBadRequest, "there are 1"},
		{"a time that is none", "slow", first, []string{"soon"}, http.StatusBadRequest, `"soon" is no time`},
		{"a negative time", "slow", first, []string{"-1s"}, http.StatusBadRequest, "is no time"},
		{"neither on nor off", "hang-tls", first, []string{"maybe"}, http.StatusBadRequest, "neither on nor off"},
		{"an address elsewhere", "change-address", first, []string{"192.0.2.1"}, http.StatusBadRequest, "not within 127.0.0.0/8"},
		{"no address", "change-address", first, []string{"x"}, http.StatusBadRequest, `"x"`},
		{"a NIC that isn't there", "swap-nic", first, []string{"eth99", "02:00:00:00:00:01"}, http.StatusBadRequest, "no such link"},
		{"a MAC that is none", "swap-nic", first, []string{"enp1s0", "x"}, http.StatusBadRequest, "no MAC address"},
		{"a size that is none", "swap-disk", first, []string{"/dev/sda", "big", "1"}, http.StatusBadRequest, `"big"`},
		{"a device that is none", "swap-disk", first, []string{"sda", "1TB", "1"}, http.StatusBadRequest, "no device path"},
		{"an unknown command", "dance", first, nil, 0, "no such command"},
		{"no machine", "wipe", "", nil, 0, "no machine named"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.client.Do(bounded(t), c.verb, c.machine, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want %q", err, c.text)
			}
			var answer *control.Error
			if errors.As(err, &answer) != (c.code != 0) || answer != nil && answer.Code != c.code {
				t.Errorf("got %+v, want the code %d", answer, c.code)
			}
		})
	}
	// A refused command leaves the machine as it was.
	r.await(t, first, node.InMaintenance)
}

func TestTheSocketOfAnotherIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := start(t, 1)
	if _, err := control.Listen(r.socket); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("a socket that answers: %v", err)
	}
	if _, err := r.client.All(bounded(t)); err != nil {
		t.Errorf("it doesn't answer any more: %v", err)
	}
	file := filepath.Join(filepath.Dir(r.socket), "notes")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "mine" {
		t.Errorf("the file: %q, %v", data, err)
	}
	if _, err := control.Listen("/" + strings.Repeat("x", 200)); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a long path: %v", err)
	}
}
