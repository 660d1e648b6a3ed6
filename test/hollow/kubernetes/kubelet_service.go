// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"maps"
	"math"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"

	"maesh.dev/ichor/test/hollow/kubernetes/connection"
	"maesh.dev/ichor/test/hollow/kubernetes/etcd"
	"maesh.dev/ichor/test/hollow/kubernetes/kubelet"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
	"maesh.dev/ichor/test/hollow/workload"
)

// kubeletRestart is how long a kubelet that restarts is away; a real one takes about as long.
const kubeletRestart = time.Second

// kubeletService is Talos' service kubelet: it restarts the kubelet when the configuration asks for another one.
type kubeletService struct {
	node *node
	kick chan struct{}

	mu      sync.Mutex
	current *kubelet.Kubelet
	admin   *connection.Connection
	pods    []kubelet.StaticPod
	closed  bool

	// wants is the fingerprint of what current was started with; it belongs to run.
	wants [sha256.Size]byte
}

func newKubeletService(n *node) *kubeletService {
	return &kubeletService{node: n, kick: make(chan struct{}, 1)}
}

func (s *kubeletService) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run starts the kubelet and follows the configuration until ctx ends.
func (s *kubeletService) run(ctx context.Context) {
	for {
		s.follow(ctx, s.node.currentConfig())

		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
	}
}

func (s *kubeletService) follow(ctx context.Context, cfg config.Provider) {
	wants, err := kubeletFingerprint(cfg)
	if err != nil {
		s.node.options.Logger.Warn("kubelet stays as it is", "error", err)

		return
	}

	if wants != s.wants {
		if !s.restart(ctx, cfg) {
			return
		}

		s.wants = wants
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.current != nil {
		s.current.SetWanted(wantedOf(cfg))
	}
}

// restart ends the kubelet that runs, if any, and starts one for the configuration.
func (s *kubeletService) restart(ctx context.Context, cfg config.Provider) bool {
	s.mu.Lock()
	old := s.current
	s.current = nil
	s.mu.Unlock()

	if old != nil {
		s.show(false)
		// No goodbye: the node stays up.
		old.Stop(ctx, true)

		timer := time.NewTimer(kubeletRestart)

		select {
		case <-ctx.Done():
			timer.Stop()

			return false
		case <-timer.C:
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return false
	}

	s.closeAdmin()

	options, err := s.options(cfg)
	if err != nil {
		s.node.options.Logger.Warn("kubelet does not start", "error", err)

		return false
	}

	if !cfg.Machine().Kubelet().SkipNodeRegistration() {
		s.current = kubelet.Start(options)
		s.current.SetStaticPods(s.pods)
	}

	s.show(true)

	return true
}

// stop ends the kubelet for good.
func (s *kubeletService) stop(ctx context.Context, kill bool) {
	s.mu.Lock()
	s.closed = true
	old := s.current
	s.current = nil
	s.mu.Unlock()

	if old != nil {
		old.Stop(ctx, kill)
	}

	s.mu.Lock()
	s.closeAdmin()
	s.mu.Unlock()
}

// setStaticPods passes on what to mirror.
func (s *kubeletService) setStaticPods(pods []kubelet.StaticPod) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.pods = pods

	if s.current != nil {
		s.current.SetStaticPods(pods)
	}
}

func (s *kubeletService) closeAdmin() {
	if s.admin != nil {
		s.admin.Close()
		s.admin = nil
	}
}

func (s *kubeletService) show(running bool) {
	service := workload.Service{ID: serviceKubelet, Running: true, Healthy: true, State: etcd.PhaseRunning, Message: messageHealthy}
	if !running {
		service = workload.Service{ID: serviceKubelet, State: etcd.PhaseStopping, Message: "Sending SIGTERM to task kubelet"}
	}

	s.node.board.service(service)
}

func (s *kubeletService) options(cfg config.Provider) (kubelet.Options, error) {
	n := s.node
	cluster := cfg.Cluster()
	bundle := pki.Bundle(cluster.AcceptedCAs(), cluster.IssuingCA())

	options := kubelet.Options{
		NodeName: n.nodeName, Address: n.machine.Address,
		Server: cluster.Endpoint().String(), CAs: bundle,
		Token: cluster.Token().ID() + "." + cluster.Token().Secret(),
		Dir:   n.machine.EphemeralDir + "/lib/kubelet",
		Facts: kubelet.Facts{
			CPUs: n.machine.CPUs, MemoryBytes: n.machine.MemoryBytes,
			MachineID: n.machine.MachineID, SystemUUID: n.machine.SystemUUID, BootID: n.machine.BootID,
			OSImage:        "Talos (" + n.machine.TalosVersion + ")",
			KubeletVersion: kubeletVersion(cfg.Machine().Kubelet().Image()),
		},
		NoCNI:              n.options.CNI == CNIAbsent,
		ServingCertificate: asksForServing(cfg.Machine().Kubelet().ExtraArgs()),
		LeaseSeconds:       leaseSeconds(cfg.Machine().Kubelet().ExtraConfig()),
		LeaseEvery:         n.options.LeaseEvery,
		Pods:               n.options.Pods,
		PodNetwork:         podNetwork(cluster),
		Logger:             n.options.Logger,
		Changed: func(state kubelet.State) {
			n.board.update(func(status *workload.Status) {
				status.NodeName = n.nodeName
				status.NodeRegistered, status.NodeReady = state.Registered, state.Ready
			})
		},
	}

	if !n.controlPlane() {
		return options, nil
	}

	options.Server = n.localURL(cluster)
	options.ControlPlane, options.Schedulable = true, cluster.ScheduleOnControlPlanes()

	admin, err := adminConnection(cluster, options.Server, "talos")
	if err != nil {
		return options, err
	}

	s.admin = admin
	options.Admin = admin

	return options, nil
}

// podNetwork is where the addresses of pods come from; the zero prefix if the configuration names none.
func podNetwork(cluster clusterConfig) netip.Prefix {
	for _, text := range cluster.Network().PodCIDRs() {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().Is4() {
			return prefix
		}
	}

	return netip.Prefix{}
}

// adminConnection connects a control plane to its own API server as Talos does, in the group system:masters.
func adminConnection(cluster clusterConfig, url, userAgent string) (*connection.Connection, error) {
	certificate, err := pki.TalosAdmin(cluster)
	if err != nil {
		return nil, err
	}

	return connection.New(url, pki.Bundle(cluster.AcceptedCAs(), cluster.IssuingCA()), userAgent, connection.Identity{
		Certificate: func() (*tls.Certificate, error) { return &certificate, nil },
	})
}

// asksForServing tells whether the kubelet's arguments have it ask the cluster for its serving certificate.
func asksForServing(arguments map[string][]string) bool {
	values := arguments["rotate-server-certificates"]

	return len(values) > 0 && values[len(values)-1] == "true"
}

// leaseSeconds is the length that the kubelet's configuration gives its Lease, 0 if it gives none.
func leaseSeconds(configuration map[string]any) int32 {
	seconds, _ := configuration["nodeLeaseDurationSeconds"].(int)

	return int32(min(max(seconds, 0), math.MaxInt32))
}

// kubeletFingerprint changes with everything that makes Talos restart the kubelet.
func kubeletFingerprint(cfg config.Provider) ([sha256.Size]byte, error) {
	k, cluster := cfg.Machine().Kubelet(), cfg.Cluster()

	text, err := json.Marshal([]any{
		k.Image(), k.ExtraArgs(), k.ExtraConfig(), k.ClusterDNS(), k.SkipNodeRegistration(), k.RegisterWithFQDN(),
		cluster.Endpoint().String(), cluster.Token().ID(), cluster.Token().Secret(), cluster.ScheduleOnControlPlanes(),
		pki.Bundle(cluster.AcceptedCAs(), cluster.IssuingCA()),
	})
	if err != nil {
		return [sha256.Size]byte{}, err
	}

	return sha256.Sum256(text), nil
}

// wantedOf is what Talos writes to the Node (Talos: k8s/node_label_spec.go, node_taint_spec.go).
func wantedOf(cfg config.Provider) kubelet.Wanted {
	machine := cfg.Machine()
	wanted := kubelet.Wanted{Labels: map[string]string{}, Annotations: machine.NodeAnnotations()}
	maps.Copy(wanted.Labels, machine.NodeLabels())

	if machine.Type().IsControlPlane() {
		wanted.Labels[constants.LabelNodeRoleControlPlane] = ""

		if !cfg.Cluster().ScheduleOnControlPlanes() {
			wanted.Taints = append(wanted.Taints, corev1.Taint{
				Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoSchedule,
			})
		}
	}

	for key, text := range machine.NodeTaints() {
		value, effect, hasValue := strings.Cut(text, ":")
		if !hasValue {
			value, effect = "", value
		}

		wanted.Taints = append(wanted.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	return wanted
}

// kubeletVersion is the version in a kubelet image's tag, which may name a flavour after it.
func kubeletVersion(image string) string {
	image, _, _ = strings.Cut(image, "@")

	colon := strings.LastIndex(image, ":")
	if colon <= strings.LastIndex(image, "/") {
		return ""
	}

	tag := image[colon+1:]
	for _, flavour := range []string{"-fat", "-slim"} {
		tag = strings.TrimSuffix(tag, flavour)
	}

	return tag
}
