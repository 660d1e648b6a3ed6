// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	talostime "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Survey is a configured machine as it sees itself, read without Kubernetes and without etcd.
type Survey struct {
	// NodeID is the machine's identity within its cluster; it lasts until its disk is wiped.
	NodeID       string
	Hostname     string
	ControlPlane bool
	TalosVersion string
	Stage        MachineStage
	Addresses    []netip.Addr
	Services     []Service
	// StaticPods are the control plane's pods as the kubelet reports them.
	StaticPods []StaticPod
	// TimeSynced is false while the machine's clock isn't set by a time server.
	TimeSynced bool
	// Clock is the machine's time, and ReadAt ours at that moment; zero if the machine didn't say.
	Clock, ReadAt time.Time
	// Peers are the machines of the cluster that discovery knows, this one included. It remembers silent ones for half an
	// hour. Source: Talos, pkg/machinery/constants (defaultDiscoveryTTL).
	Peers []Peer
}

// Service is a service of Talos as ServiceList shows it.
type Service struct {
	ID string
	// State is Talos' word: Waiting, Preparing, Running, Finished, Failed, …
	State string
	// Healthy means nothing while Unknown is true.
	Healthy, Unknown bool
	// Message is the last word of the health check.
	Message string
}

// StaticPod is one static pod.
type StaticPod struct {
	Name  string
	Ready bool
}

// Peer is a machine as discovery knows it.
type Peer struct {
	NodeID, Hostname string
	Addresses        []netip.Addr
	ControlPlane     bool
	// APIPort is the port of a control plane's own Kubernetes API; zero where it isn't told.
	APIPort int
}

const (
	// clockTimeout bounds the question for the time, for which the machine asks its time server.
	clockTimeout = 3 * time.Second
	// maxPeers bounds how many machines of a cluster are kept.
	maxPeers = 1024
	// maxServices bounds how many services and static pods are kept.
	maxServices = 256
)

func (n *node) Survey(ctx context.Context) (*Survey, error) {
	survey, err := read(ctx, n, "reading the state", func(ctx context.Context) (*Survey, error) {
		survey := &Survey{}
		return survey, errors.Join(survey.readMachine(ctx, n.reader), survey.readCluster(ctx, n.reader), survey.readServices(ctx, n))
	})
	if err != nil {
		return nil, err
	}
	survey.readClock(ctx, n)
	return survey, nil
}

func (s *Survey) readMachine(ctx context.Context, r reader) error {
	var errs []error
	kind, err := get[*config.MachineType](ctx, r, config.NamespaceName, config.MachineTypeType, config.MachineTypeID)
	if errs = append(errs, err); kind != nil {
		s.ControlPlane = kind.MachineType().IsControlPlane()
	}
	hostname, err := get[*network.HostnameStatus](ctx, r, network.NamespaceName, network.HostnameStatusType, network.HostnameID)
	if errs = append(errs, err); hostname != nil {
		s.Hostname = clean(hostname.TypedSpec().Hostname)
	}
	version, err := get[*runtime.Version](ctx, r, runtime.NamespaceName, runtime.VersionType, "version")
	if errs = append(errs, err); version != nil {
		s.TalosVersion = clean(version.TypedSpec().Version)
	}
	addresses, err := observeNodeIPs(ctx, r)
	if errs = append(errs, err); addresses != nil {
		s.Addresses = addresses.TypedSpec().IPs()
	}
	clock, err := get[*talostime.Status](ctx, r, runtime.NamespaceName, talostime.StatusType, talostime.StatusID)
	if errs = append(errs, err); clock != nil {
		s.TimeSynced = clock.TypedSpec().Synced
	}
	s.Stage, err = observeStage(ctx, r)
	return errors.Join(append(errs, err)...)
}

func (s *Survey) readCluster(ctx context.Context, r reader) error {
	identity, err := get[*cluster.Identity](ctx, r, cluster.NamespaceName, cluster.IdentityType, cluster.LocalIdentity)
	if identity != nil {
		s.NodeID = clean(identity.TypedSpec().NodeID)
	}
	members, membersErr := list[*cluster.Member](ctx, r, cluster.NamespaceName, cluster.MemberType)
	for _, member := range members[:min(len(members), maxPeers)] {
		spec := member.TypedSpec()
		peer := Peer{
			NodeID: clean(spec.NodeID), Hostname: clean(spec.Hostname), ControlPlane: spec.MachineType.IsControlPlane(),
			Addresses: slices.Clone(spec.Addresses[:min(len(spec.Addresses), maxServices)]),
		}
		if spec.ControlPlane != nil {
			peer.APIPort = spec.ControlPlane.APIServerPort
		}
		s.Peers = append(s.Peers, peer)
	}
	pods, podsErr := list[*k8s.StaticPodStatus](ctx, r, k8s.NamespaceName, k8s.StaticPodStatusType)
	for _, pod := range pods[:min(len(pods), maxServices)] {
		name := clean(pod.Metadata().ID())
		s.StaticPods = append(s.StaticPods, StaticPod{Name: name[strings.LastIndexByte(name, '/')+1:], Ready: podReady(pod.TypedSpec().PodStatus)})
	}
	return errors.Join(err, membersErr, podsErr)
}

// podReady looks for the condition Ready in a pod's status, which Talos passes on as it is.
func podReady(podStatus map[string]any) bool {
	conditions, _ := podStatus["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(each any) bool {
		condition, _ := each.(map[string]any)
		return condition["type"] == "Ready" && condition["status"] == "True"
	})
}

func (s *Survey) readServices(ctx context.Context, n *node) error {
	answer, err := n.machine.ServiceList(ctx, &emptypb.Empty{})
	if err != nil {
		return err
	}
	for _, message := range answer.GetMessages() {
		for _, service := range message.GetServices() {
			if len(s.Services) < maxServices {
				s.Services = append(s.Services, serviceOf(service))
			}
		}
	}
	return nil
}

func serviceOf(service *machineapi.ServiceInfo) Service {
	health := service.GetHealth()
	return Service{
		ID: clean(service.GetId()), State: clean(service.GetState()),
		Healthy: health.GetHealthy(), Unknown: health.GetUnknown(), Message: clean(health.GetLastMessage()),
	}
}

// readClock asks for the time. The machine asks its time server for it, so no answer is no fault of the machine's.
func (s *Survey) readClock(ctx context.Context, n *node) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	answer, err := timeapi.NewTimeServiceClient(n.channel).Time(ctx, &emptypb.Empty{})
	if err != nil || len(answer.GetMessages()) == 0 || !answer.GetMessages()[0].GetLocaltime().IsValid() {
		return
	}
	s.Clock, s.ReadAt = answer.GetMessages()[0].GetLocaltime().AsTime(), time.Now()
}
