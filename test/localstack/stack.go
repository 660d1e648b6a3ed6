// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/control"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack/auditlog"
	"maesh.dev/ichor/test/localstack/balancer"
	"maesh.dev/ichor/test/localstack/loopback"
	"maesh.dev/ichor/test/localstack/mount"
	"maesh.dev/ichor/test/localstack/state"
)

// SupervisorName is the name under which the process that runs a stack is recorded.
const SupervisorName = "localstack"

// Stack is a running local stack.
type Stack struct {
	options Options
	dir     state.Dir
	lock    *state.Lock
	logger  *slog.Logger
	logFile *os.File
	fleet   *fleet.Fleet
	first   *fleet.Machine
	ports   addresses

	// serving is the serving certificate of ichor-apiserver as a pod would have it.
	serving  *mount.Volume
	endpoint *balancer.Balancer
	health   *kubernetesHealth

	// background ends with cancel.
	background context.Context
	cancel     context.CancelFunc
	group      sync.WaitGroup

	mu          sync.Mutex
	components  []*Component // in the order of their starts
	balancers   []*balancer.Balancer
	installed   bool
	machines    *control.Client
	fingerprint talos.Fingerprint // what the first machine's console shows
	hollow      *Component
	apiServers  []*Component
	controllers []*Component
	admin       *rest.Config
	suggestions []Suggestion
}

// addresses are where the parts of a stack listen, besides the machines.
type addresses struct {
	loopback *loopback.Range
	// api and etcd are listeners of balancers on 127.0.0.1; a balancer that is started takes them over.
	api, etcd net.Listener
}

// apiServerPort, healthPort and streamPort are the ports of ichor-apiserver, and of the controller's health and machines'
// logs, each replica on an address of its own in the stack's range.
const (
	apiServerPort = 8443
	healthPort    = 8081
	streamPort    = 10260
)

// Start brings a stack up, or carries on with the one whose folder it is. When it returns an error nothing runs any
// more. ctx bounds the start only.
func Start(ctx context.Context, options Options) (*Stack, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	s := &Stack{options: options}
	s.background, s.cancel = context.WithCancel(context.Background())
	for _, step := range []func(context.Context) error{
		s.takeFolder, s.takeAddresses, s.startMachines, s.bootstrap, s.awaitControllers, s.admitPeople, s.awaitMachines, s.finish,
	} {
		if err := step(ctx); err != nil {
			stopped := s.Stop(context.WithoutCancel(ctx))
			return nil, errors.Join(err, stopped)
		}
	}
	return s, nil
}

// longestMessage is how much of a message is shown; the log has all of it.
const longestMessage = 200

func (s *Stack) progress(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	s.logger.Info(message)
	if len(message) > longestMessage {
		message = strings.ToValidUTF8(message[:longestMessage], "") + " ..."
	}
	s.options.Progress(message)
}

// takeFolder opens the state folder, which nobody else may hold.
func (s *Stack) takeFolder(context.Context) (err error) {
	if s.dir, err = state.Open(s.options.StateDir); err != nil {
		return err
	}
	if s.lock, err = s.dir.Lock(); err != nil {
		if errors.Is(err, state.ErrHeld) {
			return fmt.Errorf("%w; end it with `localstack down --state %s`, or give another --state", err, s.dir)
		}
		return err
	}
	if err := os.Remove(s.dir.Ready()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state folder: %w", err)
	}
	s.logFile, err = os.OpenFile(s.dir.Log("stack"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of the stack: %w", err)
	}
	s.logger = slog.New(slog.NewTextHandler(s.logFile, nil))
	return s.dir.SetProcess(SupervisorName, os.Getpid())
}

// takeAddresses claims the loopback range and decides about the machines.
func (s *Stack) takeAddresses(context.Context) error {
	record, err := s.dir.Load()
	if err != nil {
		return err
	}
	chosen := ""
	if record == nil {
		s.ports.loopback, err = loopback.Claim()
	} else {
		chosen = record.FirstMachine
		s.progress("carrying on with the machines in %s; remove the folder to start anew", s.dir)
		if s.ports.loopback, err = loopback.ClaimPrefix(record.Range); err != nil {
			err = fmt.Errorf("%w; the machines of this folder live there", err)
		}
	}
	if err != nil {
		return err
	}
	if s.fleet, err = loadFleet(s.options, s.dir, s.ports.loopback, record != nil); err != nil {
		return err
	}
	if s.first, err = firstMachine(s.fleet, chosen); err != nil {
		return err
	}
	if err := s.dir.Save(state.Record{Range: s.ports.loopback.Prefix(), FirstMachine: s.first.Name}); err != nil {
		return err
	}
	for _, listener := range []*net.Listener{&s.ports.api, &s.ports.etcd} {
		if *listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("listen for a balancer: %w", err)
		}
	}
	s.progress("addresses %s, cluster endpoint https://%s", s.ports.loopback.Prefix(), s.ports.loopback.Endpoint())
	return nil
}

// replicaAddress is where the nth replica of ichor-apiserver or of the controller listens.
func (s *Stack) replicaAddress(n int) netip.Addr {
	address := s.ports.loopback.Endpoint().Addr()
	for range n + 1 {
		address = address.Next()
	}
	return address
}

// machineAddresses are host:port of every machine, the first control plane in front.
func (s *Stack) machineAddresses(port uint16) []string {
	out := []string{netip.AddrPortFrom(s.first.Addr(), port).String()}
	for i := range s.fleet.Machines {
		if m := &s.fleet.Machines[i]; m != s.first {
			out = append(out, netip.AddrPortFrom(m.Addr(), port).String())
		}
	}
	return out
}

func (s *Stack) balance(listener net.Listener, config balancer.Config) *balancer.Balancer {
	config.Logger = s.logger
	b := balancer.Start(listener, config)
	s.mu.Lock()
	s.balancers = append(s.balancers, b)
	s.mu.Unlock()
	return b
}

// startMachines switches the hollow machines on, and the balancer before their kube-apiservers.
func (s *Stack) startMachines(ctx context.Context) (err error) {
	s.progress("switching %d hollow machines on", len(s.fleet.Machines))
	s.health = &kubernetesHealth{}
	s.endpoint = s.balance(s.ports.loopback.Listener(), balancer.Config{
		Name: "kube-apiserver", Backends: s.machineAddresses(6443), Check: s.health.check,
	})
	s.hollow = s.start("hollow", "hollow", hollowArgs(s.dir, s.options)...)
	s.machines = control.NewClient(controlSocket(s.dir))
	if s.fingerprint, err = s.awaitConsole(ctx); err != nil {
		return err
	}
	if s.options.NoAuditLog {
		return nil
	}
	return s.gatherAuditLogs()
}

// gatherAuditLogs copies what the control planes' audit logs say of Ichor into one file, while the stack runs.
func (s *Stack) gatherAuditLogs() error {
	keep, err := auditlog.ByPolicy(artifacts.KubeAPIServerAuditPolicy)
	if err != nil {
		return err
	}
	s.group.Go(func() {
		if err := auditlog.Follow(s.background, auditLogs(s.dir), s.dir.AuditLog(), keep, s.logger); err != nil {
			s.logger.Error("gather audit logs", "error", err)
		}
	})
	return nil
}

// finish says what to try next, and writes what says that all is up.
func (s *Stack) finish(ctx context.Context) error {
	var err error
	if s.suggestions, err = s.suggest(ctx); err != nil {
		return err
	}
	s.progress("ready")
	s.options.Announce(s.suggestions)
	return state.Write(s.dir.Ready(), []byte(time.Now().UTC().Format(time.RFC3339)+"\n"))
}

// Stop ends everything that the stack started, in the reverse order, and gives its folder up. It returns when nothing
// of it runs any more.
func (s *Stack) Stop(ctx context.Context) error {
	var faults []error
	if s.lock != nil {
		if err := os.Remove(s.dir.Ready()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	s.mu.Lock()
	components, balancers := s.components, s.balancers
	s.components, s.balancers = nil, nil
	s.mu.Unlock()
	// Controllers and API servers go first and together: they would only complain about the machines' end.
	var group sync.WaitGroup
	for _, c := range components {
		if c != s.hollow {
			group.Go(func() { c.stop(ctx) })
		}
	}
	group.Wait()
	if s.hollow != nil {
		s.hollow.stop(ctx)
	}
	s.cancel()
	for _, b := range balancers {
		b.Close()
	}
	s.group.Wait()
	faults = append(faults, s.release()...)
	return errors.Join(faults...)
}

// release gives up what the stack holds itself.
func (s *Stack) release() []error {
	var faults []error
	for _, listener := range []net.Listener{s.ports.api, s.ports.etcd, s.rangeListener()} {
		if listener == nil {
			continue
		}
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			faults = append(faults, err)
		}
	}
	if s.lock != nil {
		faults = append(faults, s.dir.ClearProcess(SupervisorName), s.lock.Release())
	}
	if s.logFile != nil {
		faults = append(faults, s.logFile.Close())
	}
	return faults
}

func (s *Stack) rangeListener() net.Listener {
	if s.ports.loopback == nil {
		return nil
	}
	return s.ports.loopback.Listener()
}
