// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
	"maesh.dev/ichor/test/hollow/kubernetes/process"
)

// Phases of the service, in the words of Talos' ServiceList.
const (
	PhasePreparing = "Preparing"
	PhaseRunning   = "Running"
	PhaseStopping  = "Stopping"
	PhaseFinished  = "Finished"
	PhaseFailed    = "Failed"
)

// Options describe one member for one boot.
type Options struct {
	// Name is the member's name: the node's hostname.
	Name string
	// Address is where it listens, and what it advertises.
	Address netip.Addr
	// CA is the etcd CA with its key.
	CA *pki.Pair
	// ExtraArgs come from the machine configuration.
	ExtraArgs map[string][]string
	// DataDir survives reboots; SnapshotPath is where an uploaded snapshot waits for a bootstrap.
	DataDir, SnapshotPath string
	// Keys is where certificates are written.
	Keys pki.Folder
	// Command is the executable, with leading arguments, that behaves as etcd.
	Command []string
	LogFile string
	// Fsync makes the member survive a power cut of the host, too; a hollow node's power cut doesn't need it.
	Fsync bool
	// Endpoints returns the addresses of the cluster's control planes, this one included.
	Endpoints func() []netip.Addr
	Logger    *slog.Logger
	// Changed is called with each change of the state, in order and under a lock: it must not call the member.
	Changed func(State)
	// JoinEvery and PromoteEvery pace the attempts to join and to become a voter (Talos: 3 s and 15 s).
	JoinEvery, PromoteEvery time.Duration
}

// State is what the service shows of itself.
type State struct {
	Phase, Message   string
	Healthy, Unknown bool
	// MemberID is zero until the member runs.
	MemberID uint64
}

// Member is the etcd service of one control plane.
type Member struct {
	options Options

	// control serializes starts, stops and bootstraps.
	control sync.Mutex
	current *run
	closed  bool

	mu    sync.Mutex
	state State
}

// run is one life of the service, from PreFunc to the end of the process.
type run struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	ended bool
	child *process.Child
}

// mode says how a run without data begins.
type mode struct {
	bootstrap, restore, skipHashCheck bool
}

// New prepares a member; nothing runs yet.
func New(options Options) *Member {
	if options.JoinEvery == 0 {
		options.JoinEvery = time.Second
	}

	if options.PromoteEvery == 0 {
		options.PromoteEvery = 2 * time.Second
	}

	return &Member{options: options}
}

// Start begins the service: with data it rejoins, without it waits to join or to be bootstrapped.
func (m *Member) Start() {
	m.control.Lock()
	defer m.control.Unlock()

	if !m.closed {
		m.start(mode{})
	}
}

// Stop ends the service; a bootstrap starts it again.
func (m *Member) Stop(ctx context.Context) {
	m.control.Lock()
	defer m.control.Unlock()

	m.stop(ctx, false)
}

// Close ends the service for this boot; with kill as a power cut does.
func (m *Member) Close(ctx context.Context, kill bool) {
	m.control.Lock()
	defer m.control.Unlock()

	m.closed = true
	m.stop(ctx, kill)
}

// State returns the service's state.
func (m *Member) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.state
}

// Bootstrap starts a new cluster on this node, empty or from an uploaded snapshot. It returns as soon as the attempt has
// begun (Talos: MachineService.Bootstrap after its checks of role and machine type).
func (m *Member) Bootstrap(ctx context.Context, request *machine.BootstrapRequest) error {
	if hasEntries(m.options.DataDir) {
		return status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	m.control.Lock()
	defer m.control.Unlock()

	if m.closed {
		return status.Error(codes.Unavailable, "the node is going down")
	}

	m.stop(ctx, false)
	m.update(func(s *State) { s.Phase, s.Message = PhaseFinished, "Bootstrap requested" })

	// The member may have joined between the first look and the stop.
	if hasEntries(m.options.DataDir) {
		m.start(mode{})

		return errors.New("etcd data directory is not empty")
	}

	m.start(mode{
		bootstrap: true, restore: request.GetRecoverEtcd(), skipHashCheck: request.GetRecoverSkipHashCheck(),
	})

	return nil
}

func (m *Member) start(mode mode) {
	ctx, cancel := context.WithCancel(context.Background())
	m.current = &run{cancel: cancel, done: make(chan struct{})}

	m.update(func(s *State) { *s = State{Phase: PhasePreparing, Message: "Running pre state", Unknown: true} })

	go m.live(ctx, m.current, mode)
}

func (m *Member) stop(ctx context.Context, kill bool) {
	r := m.current
	if r == nil {
		return
	}

	m.current = nil

	m.update(func(s *State) { s.Phase, s.Message, s.Healthy = PhaseStopping, "Sending SIGTERM to etcd", false })
	r.cancel()

	r.mu.Lock()
	child := r.child
	r.ended = true
	r.mu.Unlock()

	switch {
	case child == nil:
	case kill:
		child.Kill()
	default:
		child.Stop(ctx)
	}

	<-r.done

	m.update(func(s *State) { *s = State{Phase: PhaseFinished, Message: "Service finished successfully"} })
}

// live is one run of the service.
func (m *Member) live(ctx context.Context, r *run, mode mode) {
	defer close(r.done)
	defer r.cancel()

	args, learner, err := m.prepare(ctx, mode)
	if err != nil {
		if ctx.Err() == nil {
			m.options.Logger.Warn("etcd did not start", "error", err)
			m.update(func(s *State) {
				*s = State{Phase: PhaseFailed, Message: fmt.Sprintf("failed to run pre stage: %v", err)}
			})
		}

		return
	}

	if !m.launch(r, args) {
		return
	}

	var tasks sync.WaitGroup

	if learner != 0 {
		tasks.Go(func() { m.promote(ctx, learner) })
	}

	tasks.Go(func() { m.watchHealth(ctx) })
	tasks.Wait()
}

// launch starts the process unless the run was ended meanwhile.
func (m *Member) launch(r *run, args []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.ended {
		return false
	}

	r.child = process.Start(process.Spec{
		Name: "etcd " + m.options.Name, Path: m.options.Command[0], Args: append(m.options.Command[1:len(m.options.Command):len(m.options.Command)], args...),
		LogFile: m.options.LogFile, Logger: m.options.Logger, Changed: m.processChanged,
	})

	return true
}

func (m *Member) processChanged(pid int, reason error) {
	m.update(func(s *State) {
		if s.Phase == PhaseStopping {
			return
		}

		if pid != 0 {
			s.Phase, s.Message = PhaseRunning, fmt.Sprintf("Started task etcd (PID %d) for container etcd", pid)

			return
		}

		s.Phase, s.Message, s.Healthy, s.Unknown = PhaseRunning, fmt.Sprintf("restarting: %v", reason), false, false
	})
}

// prepare is the service's PreFunc: it decides the command line, after waiting for a cluster to join if need be.
func (m *Member) prepare(ctx context.Context, mode mode) (args []string, learner uint64, err error) {
	if mode.restore {
		if err = m.restore(mode.skipHashCheck); err != nil {
			return nil, 0, err
		}
	}

	if err = os.MkdirAll(m.options.DataDir, 0o700); err != nil {
		return nil, 0, fmt.Errorf("make etcd's data folder: %w", err)
	}

	files, err := pki.WriteEtcd(m.options.Keys, m.options.CA, pki.Identity{Hostname: m.options.Name, Address: m.options.Address})
	if err != nil {
		return nil, 0, err
	}

	var initial cluster

	switch {
	case hasEntries(m.options.DataDir):
	case mode.bootstrap:
		initial = cluster{state: "new", members: m.options.alone()}
	default:
		var members string

		if members, learner, err = m.join(ctx); err != nil {
			return nil, 0, fmt.Errorf("failed to build initial etcd cluster: %w", err)
		}

		initial = cluster{state: "existing", members: members}
	}

	args, err = m.options.args(files, initial)

	return args, learner, err
}

// update changes the state and tells of it when it differs. The lock is held meanwhile, so that the last word heard is
// the last said.
func (m *Member) update(change func(*State)) {
	m.mu.Lock()
	defer m.mu.Unlock()

	before := m.state
	change(&m.state)

	if before != m.state {
		m.options.Changed(m.state)
	}
}

// hasEntries tells whether a folder exists and holds something.
func hasEntries(dir string) bool {
	entries, err := os.ReadDir(dir)

	return err == nil && len(entries) > 0
}
