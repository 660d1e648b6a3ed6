// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	talostime "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

var sameAddress = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestASurvey(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	address := netip.MustParseAddr("10.0.0.1")
	kind := talosconfig.NewMachineType()
	kind.SetMachineType(machinetype.TypeControlPlane)
	identity := cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity)
	identity.TypedSpec().NodeID = "node-1"
	hostname := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	hostname.TypedSpec().Hostname = "cp-1"
	version := runtime.NewVersion()
	version.TypedSpec().Version = "v1.13.9"
	addresses := network.NewNodeAddress(network.NamespaceName, network.NodeAddressCurrentID)
	addresses.TypedSpec().Addresses = []netip.Prefix{netip.PrefixFrom(address, 24)}
	clock := talostime.NewStatus()
	clock.TypedSpec().Synced = true
	stage := runtime.NewMachineStatus()
	stage.TypedSpec().Stage = runtime.MachineStageRunning
	member := cluster.NewMember(cluster.NamespaceName, "cp-2")
	*member.TypedSpec() = cluster.MemberSpec{
		NodeID: "node-2", Hostname: "cp-2", MachineType: machinetype.TypeControlPlane,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, ControlPlane: &cluster.ControlPlane{APIServerPort: 6444},
	}
	pods := make([]*k8s.StaticPodStatus, 2)
	for i, ready := range []string{"True", "False"} {
		pods[i] = k8s.NewStaticPodStatus(k8s.NamespaceName, "kube-system/"+[]string{"kube-apiserver-cp-1", "kube-scheduler-cp-1"}[i])
		pods[i].TypedSpec().PodStatus = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}}
	}
	node.put(t, kind, identity, hostname, version, addresses, clock, stage, member, pods[0], pods[1])
	node.onServices = func() (*machineapi.ServiceListResponse, error) {
		return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: []*machineapi.ServiceInfo{
			{Id: "etcd", State: "Preparing", Health: &machineapi.ServiceHealth{Unknown: true}},
			{Id: "kubelet", State: "Running", Health: &machineapi.ServiceHealth{Healthy: true, LastMessage: "Health check successful"}},
		}}}}, nil
	}
	node.clock = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

	connection := node.dialConfigured(t, credentials)
	before := time.Now()
	got, err := connection.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &talos.Survey{
		NodeID: "node-1", Hostname: "cp-1", ControlPlane: true, TalosVersion: "v1.13.9", TimeSynced: true, Clock: node.clock,
		Stage:     talos.MachineStage{Stage: v1alpha1.StageRunning},
		Addresses: []netip.Addr{address},
		Services: []talos.Service{
			{ID: "etcd", State: "Preparing", Unknown: true},
			{ID: "kubelet", State: "Running", Healthy: true, Message: "Health check successful"},
		},
		StaticPods: []talos.StaticPod{{Name: "kube-apiserver-cp-1", Ready: true}, {Name: "kube-scheduler-cp-1"}},
		Peers:      []talos.Peer{{NodeID: "node-2", Hostname: "cp-2", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, ControlPlane: true, APIPort: 6444}},
	}
	if diff := cmp.Diff(want, got, sameAddress, cmpopts.IgnoreFields(talos.Survey{}, "ReadAt")); diff != "" {
		t.Errorf("survey (-want +got):\n%s", diff)
	}
	if got.ReadAt.Before(before) {
		t.Errorf("the clock was read at %s, before it was asked for", got.ReadAt)
	}

	node.clock = time.Time{}
	got, err = connection.Survey(t.Context())
	if err != nil || !got.Clock.IsZero() || !got.ReadAt.IsZero() {
		t.Errorf("without a time server: %v, clock %v", err, got)
	}
	node.onServices = func() (*machineapi.ServiceListResponse, error) {
		return nil, status.Error(codes.Unavailable, "going down")
	}
	if _, err := connection.Survey(t.Context()); err == nil {
		t.Error("a machine that doesn't list its services gave a survey")
	}
}

func TestASurveyOfAMachineThatKnowsNothingYet(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	node.onServices = func() (*machineapi.ServiceListResponse, error) { return &machineapi.ServiceListResponse{}, nil }
	got, err := node.dialConfigured(t, credentials).Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&talos.Survey{Stage: talos.MachineStage{Stage: v1alpha1.StageUnknown}}, got, sameAddress); diff != "" {
		t.Errorf("survey (-want +got):\n%s", diff)
	}
	if slices.Contains(got.Addresses, loopback) {
		t.Error("it made up an address")
	}
}
