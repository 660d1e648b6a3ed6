// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"maesh.dev/ichor/test/hollow/kubernetes/etcd"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
	"maesh.dev/ichor/test/hollow/kubernetes/trustd"
	"maesh.dev/ichor/test/hollow/workload"
)

// Services as Talos names them.
const (
	serviceCRI     = "cri"
	serviceEtcd    = "etcd"
	serviceKubelet = "kubelet"
	serviceTrustd  = "trustd"
)

// Messages of services, in Talos' words.
const (
	messageHealthy = "Health check successful"
	messageWaitCRI = "Waiting for service \"cri\" to be \"up\""
)

// trustdRetry paces attempts to listen, while the last boot's listener may still be closing.
const trustdRetry = time.Second

// node is the workload of one boot.
type node struct {
	options  Options
	machine  workload.Machine
	identity pki.Identity
	nodeName string
	runDir   pki.Folder
	board    *board

	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// criUp is closed when the container runtime, and what depends on it, may start.
	criUp chan struct{}

	mu     sync.Mutex
	config config.Provider

	// member, plane and kubelet end with the boot; member and plane are nil on workers.
	member  *etcd.Member
	plane   *plane
	kubelet *kubeletService
	stop    sync.Once
}

var _ workload.Runtime = (*node)(nil)

func newNode(options Options, m workload.Machine, notify func(workload.Status)) (*node, error) {
	if m.Config == nil || m.Config.Machine() == nil || m.Config.Cluster() == nil {
		return nil, fmt.Errorf("start workload of %s: the machine configuration is incomplete", m.Name)
	}

	nodeName, err := nodeNameOf(m.Hostname)
	if err != nil {
		return nil, fmt.Errorf("start workload of %s: %w", m.Name, err)
	}

	n := &node{
		options: options, machine: m, nodeName: nodeName, config: m.Config,
		identity: pki.Identity{Hostname: m.Hostname, Address: m.Address},
		runDir:   pki.Folder(options.RunDir(m)),
		criUp:    make(chan struct{}),
	}
	n.options.Logger = options.Logger.With("machine", m.Name)

	if err = n.prepareFolders(); err != nil {
		return nil, fmt.Errorf("start workload of %s: %w", m.Name, err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.board = newBoard(notify)
	n.kubelet = newKubeletService(n)

	if n.controlPlane() {
		n.member = etcd.New(n.etcdOptions())
		n.plane = newPlane(n)
		options.Discovery.announce(m.Config.Cluster().ID(), m.Name, m.Address)
	}

	n.showWaiting()
	n.tasks.Go(func() { n.run(ctx) })

	return n, nil
}

// prepareFolders starts with keys of this boot only; what stands for /var is left as it is.
func (n *node) prepareFolders() error {
	if err := os.RemoveAll(string(n.runDir)); err != nil {
		return fmt.Errorf("empty the folder of keys: %w", err)
	}

	for _, dir := range []string{filepath.Join(n.machine.EphemeralDir, "lib"), n.machine.LogDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}

	return nil
}

// run brings the services up and keeps those that live in this process until ctx ends.
func (n *node) run(ctx context.Context) {
	timer := time.NewTimer(n.options.CRIAfter)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}

	n.board.service(workload.Service{ID: serviceCRI, Running: true, Healthy: true, State: etcd.PhaseRunning, Message: messageHealthy})
	close(n.criUp)

	var services sync.WaitGroup

	if n.controlPlane() {
		n.member.Start()
		services.Go(func() { n.plane.run(ctx) })
		services.Go(func() { n.serveTrustd(ctx) })
	}

	services.Go(func() { n.kubelet.run(ctx) })
	services.Wait()
}

// showWaiting puts every service of the node on the board.
func (n *node) showWaiting() {
	if n.options.CRIAfter > 0 {
		n.board.service(workload.Service{ID: serviceCRI, Unknown: true, State: etcd.PhasePreparing, Message: "Running pre state"})
	}

	ids := []string{serviceKubelet}
	if n.controlPlane() {
		ids = []string{serviceEtcd, serviceKubelet, serviceTrustd}
	}

	for _, id := range ids {
		n.board.service(workload.Service{ID: id, Unknown: true, State: "Waiting", Message: messageWaitCRI})
	}
}

// serveTrustd listens until ctx ends.
func (n *node) serveTrustd(ctx context.Context) {
	ticker := time.NewTicker(trustdRetry)
	defer ticker.Stop()

	for {
		server, err := trustd.Start(ctx, n.identity, n.currentConfig)
		if err == nil {
			n.board.service(workload.Service{ID: serviceTrustd, Running: true, Healthy: true, State: etcd.PhaseRunning, Message: messageHealthy})

			<-ctx.Done()
			server.Stop()

			return
		}

		n.board.service(workload.Service{ID: serviceTrustd, Unknown: true, State: etcd.PhaseFailed, Message: err.Error()})

		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (n *node) etcdOptions() etcd.Options {
	lib := filepath.Join(n.machine.EphemeralDir, "lib")
	cluster := n.config.Cluster()

	return etcd.Options{
		Name: n.machine.Hostname, Address: n.machine.Address,
		CA: cluster.Etcd().CA(), ExtraArgs: cluster.Etcd().ExtraArgs(),
		DataDir: filepath.Join(lib, "etcd"), SnapshotPath: filepath.Join(lib, "etcd.snapshot"),
		Keys: n.runDir + "/etcd", Command: n.options.Etcd, LogFile: n.logFile(serviceEtcd), Fsync: n.options.Fsync,
		Endpoints: n.endpoints, Logger: n.options.Logger, Changed: n.etcdChanged,
	}
}

// endpoints are the control planes that discovery knows; without another one, the address in the configuration's
// endpoint is worth a try (Talos: k8s/static_endpoint.go).
func (n *node) endpoints() []netip.Addr {
	cluster := n.currentConfig().Cluster()

	found := n.options.Discovery.Endpoints(cluster.ID())
	if len(found) > 1 {
		return found
	}

	if address, err := netip.ParseAddr(cluster.Endpoint().Hostname()); err == nil && address != n.machine.Address {
		found = append(found, address)
	}

	return found
}

func (n *node) etcdChanged(state etcd.State) {
	n.board.update(func(status *workload.Status) { status.EtcdMemberID = state.MemberID })
	n.board.service(workload.Service{
		ID: serviceEtcd, Running: state.Phase == etcd.PhaseRunning, Healthy: state.Healthy, Unknown: state.Unknown,
		State: state.Phase, Message: state.Message,
	})
	n.plane.wake()
}

func (n *node) controlPlane() bool { return n.machine.Config.Machine().Type().IsControlPlane() }

func (n *node) logFile(program string) string {
	return filepath.Join(n.machine.LogDir, n.machine.Name+"-"+program+".log")
}

func (n *node) currentConfig() config.Provider {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.config
}

// localURL is the node's own API server.
func (n *node) localURL(cluster interface{ LocalAPIServerPort() int }) string {
	return fmt.Sprintf("https://%s", netip.AddrPortFrom(n.machine.Address, uint16(cluster.LocalAPIServerPort())))
}

// UpdateConfig takes a configuration that was applied without a reboot: what depends on what changed starts again.
func (n *node) UpdateConfig(cfg config.Provider) {
	n.mu.Lock()
	n.config = cfg
	n.mu.Unlock()

	if n.plane != nil {
		n.plane.wake()
	}

	n.kubelet.wake()
}

// Stop ends the workload. In order, the kubelet says goodbye while the API server still runs, and etcd goes last.
func (n *node) Stop(ctx context.Context, kill bool) {
	n.stop.Do(func() {
		if kill && n.controlPlane() {
			// A power cut is the same moment for everything.
			n.plane.stopPrograms(ctx, true)
			n.member.Close(ctx, true)
		}

		n.kubelet.stop(ctx, kill)
		n.cancel()
		n.tasks.Wait()

		if n.controlPlane() {
			n.plane.stopPrograms(ctx, kill)
			n.plane.close()
			n.member.Close(ctx, kill)
			n.options.Discovery.fallSilent(n.machine.Config.Cluster().ID(), n.machine.Name)
		}

		n.board.close()

		if err := os.RemoveAll(string(n.runDir)); err != nil {
			n.options.Logger.Warn("remove keys", "error", err)
		}
	})
}

// nodeNameOf turns a hostname into a Node's name (Talos: k8s/internal/nodename).
func nodeNameOf(hostname string) (string, error) {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r == '_':
			return '-'
		default:
			return -1
		}
	}, hostname)

	if name = strings.Trim(name, "-."); name == "" {
		return "", errors.New("hostname " + hostname + " makes no name of a Kubernetes Node")
	}

	return name, nil
}
