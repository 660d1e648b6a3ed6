// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// handshake looks at what a listener presents, as a scan does.
func handshake(t *testing.T, address netip.Addr) tls.ConnectionState {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{
		// Only what is presented is looked at.
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	}}
	c, err := dialer.DialContext(patient(t), "tcp", netip.AddrPortFrom(address, 50000).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only looked at
	return c.(*tls.Conn).ConnectionState()
}

func TestTheMaintenanceCertificateIsOneThrowAwayLeaf(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	n := rack.Start(rack.Machine())
	s := hollowtest.Wait(t, n, node.InMaintenance)
	state := handshake(t, s.Address)
	if state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "h2" || len(state.PeerCertificates) != 1 {
		t.Errorf("version %x, protocol %q, %d certificates", state.Version, state.NegotiatedProtocol, len(state.PeerCertificates))
	}
	leaf := state.PeerCertificates[0]
	if leaf.Subject.CommonName != "maintenance-service.talos.dev" || len(leaf.Issuer.Organization) != 0 || leaf.PublicKeyAlgorithm != x509.Ed25519 {
		t.Errorf("subject %s, issuer %s, key %s", leaf.Subject, leaf.Issuer, leaf.PublicKeyAlgorithm)
	}
	if !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) || leaf.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("key usage %v, %v", leaf.KeyUsage, leaf.ExtKeyUsage)
	}
	if life := time.Until(leaf.NotAfter); life > 24*time.Hour || life < 23*time.Hour {
		t.Errorf("valid for %s", life)
	}
	n.NewCertificate()
	hollowtest.Wait(t, n, func(after node.Status) bool { return after.Fingerprint != s.Fingerprint })
	if again := handshake(t, s.Address).PeerCertificates[0]; slices.Equal(again.RawSubjectPublicKeyInfo, leaf.RawSubjectPublicKeyInfo) {
		t.Error("a new certificate has the old key")
	}
}

// Texts are those that were measured on real nodes (talos-contract.md §3).
func TestAConfiguredNodeRefusesStrangersAsTalosDoes(t *testing.T) {
	t.Parallel()
	rack, c, n := controlPlane(t)
	foreign := hollowtest.NewCluster(t, rack.Addr(), "/dev/sda")
	mixed := c.TLS(role.Admin)
	mixed.RootCAs = foreign.TLS(role.Admin).RootCAs
	stranger := foreign.TLS(role.Admin)
	stranger.RootCAs = c.TLS(role.Admin).RootCAs
	for _, test := range []struct {
		name  string
		tls   *tls.Config
		texts []string
	}{
		// The node has to end it; whether the client trusts the node is not the question.
		{"without a certificate", &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, []string{"certificate required", "broken pipe", "connection reset"}},
		{"with a certificate of another cluster", stranger, []string{"unknown certificate authority", "broken pipe", "connection reset"}},
		{"who trusts another cluster's CA", mixed, []string{"certificate signed by unknown authority"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := hollowtest.Dial(t, n.Address(), test.tls).Version(patient(t))
			if status.Code(err) != codes.Unavailable || !slices.ContainsFunc(test.texts, func(text string) bool { return strings.Contains(err.Error(), text) }) {
				t.Errorf("got %v", err)
			}
		})
	}
	leaf := handshake(t, n.Address()).PeerCertificates[0]
	if !slices.Equal(leaf.Issuer.Organization, []string{"talos"}) || leaf.Subject.CommonName != n.Status().Hostname {
		t.Errorf("subject %s, issuer %s", leaf.Subject, leaf.Issuer)
	}
}

func TestACertificateForMoreThanClientsIsRefused(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	cfg := c.TLS(role.Admin)
	cfg.Certificates = []tls.Certificate{serverAndClientCertificate(t, c)}
	if _, err := hollowtest.Dial(t, n.Address(), cfg).Version(patient(t)); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestAMachineOfAnotherClusterLetsNobodyIn(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	m.State = fleet.StateForeign
	n := rack.Start(m)
	s := hollowtest.Wait(t, n, func(s node.Status) bool { return s.Listening })
	if s.Mode != node.ModeConfigured {
		t.Errorf("mode %s", s.Mode)
	}
	if issuer := handshake(t, s.Address).PeerCertificates[0].Issuer; !slices.Equal(issuer.Organization, []string{"talos"}) {
		t.Errorf("issuer %s", issuer)
	}
	if _, err := hollowtest.Insecure(t, n).Version(patient(t)); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestAHungListenerSaysNothingUntilItIsLetGo(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	n := rack.Start(rack.Machine())
	s := hollowtest.Wait(t, n, node.InMaintenance)
	n.HangTLS(true)
	// Nothing is presented that could be verified: the handshake hangs.
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}}
	ctx := patient(t)
	done := make(chan error, 1)
	go func() {
		_, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(s.Address, 50000).String())
		done <- err
	}()
	hollowtest.Wait(t, n, func(after node.Status) bool { return after.Connections > s.Connections })
	select {
	case err := <-done:
		t.Fatalf("the handshake ended: %v", err)
	default:
	}
	n.HangTLS(false)
	if err := <-done; err == nil {
		t.Error("a held connection was answered")
	}
	handshake(t, s.Address)
}

func TestAnOversizedInventoryCantBeReceived(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	n := rack.Start(rack.Machine())
	hollowtest.Wait(t, n, node.InMaintenance)
	n.Oversize(true)
	c := hollowtest.Insecure(t, n)
	_, err := safe.StateGetByID[*hardware.SystemInformation](patient(t), c.COSI, hardware.SystemInformationID)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	n.Oversize(false)
	if _, err := safe.StateGetByID[*hardware.SystemInformation](patient(t), c.COSI, hardware.SystemInformationID); err != nil {
		t.Error(err)
	}
}
