// SPDX-License-Identifier: Apache-2.0

package talosclient_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// controlPlane starts a machine and makes it a control plane.
func controlPlane(t *testing.T, rack *hollowtest.Rack, cluster **hollowtest.Cluster) *node.Node {
	t.Helper()
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	if *cluster == nil {
		*cluster = hollowtest.NewCluster(t, n.Address(), m.Disks[0].Device)
	}
	if _, err := maintenance(t, n, pinOf(n)).ApplyConfiguration(patient(t), (*cluster).Config(machinetype.TypeControlPlane), talos.ApplyAuto); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return s.Installed != nil && s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
	})
	return n
}

func as(t *testing.T, n *node.Node, cluster *hollowtest.Cluster, which role.Role) talos.ConfiguredNode {
	t.Helper()
	certificate, err := cluster.Bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(which), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := dialer.DialConfigured(patient(t), n.Address(), talos.Credentials{CA: cluster.Bundle.Certs.OS.Crt, Certificate: certificate.Crt, Key: certificate.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// peerAt is nil if what the machine knows of an address is as wanted.
func peerAt(survey *talos.Survey, address netip.Addr) error {
	for _, peer := range survey.Peers {
		if len(peer.Addresses) == 1 && peer.Addresses[0] == address {
			if !peer.ControlPlane || peer.APIPort != 6443 || peer.NodeID == "" || peer.Hostname == "" {
				return fmt.Errorf("peer at %s: %+v", address, peer)
			}
			return nil
		}
	}
	return fmt.Errorf("the machine knows no peer at %s: %+v", address, survey.Peers)
}

func TestAControlPlaneKnowsSilentOnes(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	var cluster *hollowtest.Cluster
	first := controlPlane(t, rack, &cluster)
	second := controlPlane(t, rack, &cluster)

	connection := as(t, first, cluster, role.Reader)
	survey, err := connection.Survey(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	if !survey.ControlPlane || survey.NodeID == "" || survey.Hostname == "" || survey.TalosVersion == "" || !survey.TimeSynced || survey.Clock.IsZero() || len(survey.Addresses) == 0 || survey.Addresses[0] != first.Address() {
		t.Errorf("survey %+v", survey)
	}
	states := map[string]string{}
	for _, service := range survey.Services {
		states[service.ID] = service.State
	}
	if states["etcd"] != "Preparing" || states["kubelet"] != "Running" {
		t.Errorf("services %+v, want an etcd that waits to be bootstrapped", survey.Services)
	}

	if err := second.PowerOff(); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, second, node.IsOff)
	survey, err = connection.Survey(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node.Node{first, second} {
		if err := peerAt(survey, n.Address()); err != nil {
			t.Error(err)
		}
	}
}

func TestWhoMayReadEtcd(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	var cluster *hollowtest.Cluster
	n := controlPlane(t, rack, &cluster)
	if err := as(t, n, cluster, role.Admin).Bootstrap(patient(t)); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.Running)
	for _, tc := range []struct {
		role             role.Role
		survey, snapshot codes.Code
	}{
		{role.Reader, codes.OK, codes.PermissionDenied},
		{role.EtcdBackup, codes.PermissionDenied, codes.OK},
	} {
		connection := as(t, n, cluster, tc.role)
		status, err := connection.EtcdStatus(patient(t))
		if err != nil || !status.KnowsLeader() {
			t.Errorf("%s: status %+v, %v", tc.role, status, err)
		}
		if _, err := connection.EtcdMembers(patient(t)); err != nil {
			t.Errorf("%s: members: %v", tc.role, err)
		}
		if _, err := connection.EtcdAlarms(patient(t)); err != nil {
			t.Errorf("%s: alarms: %v", tc.role, err)
		}
		if _, err := connection.Survey(patient(t)); talos.Code(err) != tc.survey {
			t.Errorf("%s: survey: %v, want %s", tc.role, err, tc.survey)
		}
		var out bytes.Buffer
		if size, err := connection.EtcdSnapshot(patient(t), &out); talos.Code(err) != tc.snapshot || size != int64(out.Len()) || (size > 0) != (tc.snapshot == codes.OK) {
			t.Errorf("%s: snapshot of %d bytes: %v, want %s", tc.role, size, err, tc.snapshot)
		}
	}
}
