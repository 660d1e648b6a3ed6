// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"maesh.dev/ichor/pkg/talos"
)

// maintenanceName is the common name of a maintenance certificate.
const maintenanceName = "maintenance-service.talos.dev"

// loopback is where every server of these tests listens.
var loopback = netip.MustParseAddr("127.0.0.1")

// authority is a certificate authority of a test.
type authority struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, organization string) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if organization != "" {
		template.Subject.Organization = []string{organization}
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue signs a certificate for the loopback address.
func (a authority) issue(t *testing.T, name pkix.Name, usage x509.ExtKeyUsage, addresses ...net.IP) tls.Certificate {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: name, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a authority) server(t *testing.T, commonName string) tls.Certificate {
	return a.issue(t, pkix.Name{CommonName: commonName}, x509.ExtKeyUsageServerAuth, loopback.AsSlice())
}

// credentials are those of an administrator.
func (a authority) credentials(t *testing.T) talos.Credentials {
	t.Helper()
	pair := a.issue(t, pkix.Name{Organization: []string{"os:admin"}}, x509.ExtKeyUsageClientAuth)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return talos.Credentials{
		CA:          a.pem,
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		NotAfter:    pair.Leaf.NotAfter,
	}
}

// fakeNode is a server with the calls of a Talos node that these tests need.
type fakeNode struct {
	machineapi.UnimplementedMachineServiceServer
	state state.State
	port  uint16
	pin   talos.Fingerprint

	mu      sync.Mutex
	applied []*machineapi.ApplyConfigurationRequest

	onApply     func(*machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error)
	onBootstrap func() error
	onRead      func(machineapi.MachineService_ReadServer) error
	onKube      func(machineapi.MachineService_KubeconfigServer) error
	onMembers   func(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error)
	onRemove    func(uint64) error
	onStatus    func() (*machineapi.EtcdStatusResponse, error)
	onAlarms    func() (*machineapi.EtcdAlarmListResponse, error)
	onSnapshot  func(machineapi.MachineService_EtcdSnapshotServer) error
	onServices  func() (*machineapi.ServiceListResponse, error)
	clock       time.Time // of the machine; zero: its time server doesn't answer
}

// newState is an empty state of a node.
func newState() state.State {
	return state.WrapCore(namespaced.NewState(func(ns resource.Namespace) state.CoreState {
		return inmem.NewStateWithOptions()(ns)
	}))
}

// startNode serves a node in maintenance mode, or a configured one if clients is not nil.
func startNode(t *testing.T, certificate tls.Certificate, clients *authority, wrap func(net.Listener) net.Listener) *fakeNode {
	t.Helper()
	node := &fakeNode{state: newState(), pin: talos.FingerprintOf(certificate.Leaf)}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}
	if clients != nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AddCert(clients.cert)
	}
	grpcServer := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxRecvMsgSize(32<<20))
	machineapi.RegisterMachineServiceServer(grpcServer, node)
	timeapi.RegisterTimeServiceServer(grpcServer, timeServer{node: node})
	cosi.RegisterStateServer(grpcServer, server.NewState(node.state))
	node.port = serveGRPC(t, grpcServer, wrap)
	return node
}

func serveGRPC(t *testing.T, grpcServer *grpc.Server, wrap func(net.Listener) net.Listener) uint16 {
	t.Helper()
	listener := listen(t)
	port := portOf(listener)
	if wrap != nil {
		listener = wrap(listener)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = grpcServer.Serve(listener)
	}()
	t.Cleanup(func() {
		grpcServer.Stop()
		<-done
	})
	return port
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func portOf(listener net.Listener) uint16 {
	return listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

// maintenanceNode starts a node in maintenance mode.
func maintenanceNode(t *testing.T) *fakeNode {
	t.Helper()
	return startNode(t, newAuthority(t, "").server(t, maintenanceName), nil, nil)
}

// configuredNode starts a configured node and returns credentials for it.
func configuredNode(t *testing.T) (*fakeNode, talos.Credentials) {
	t.Helper()
	ca := newAuthority(t, "talos")
	return startNode(t, ca.server(t, "cp-1"), &ca, nil), ca.credentials(t)
}

func (n *fakeNode) put(t *testing.T, resources ...resource.Resource) {
	t.Helper()
	for _, r := range resources {
		if err := n.state.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

// dialMaintenance connects with the node's own pin.
func (n *fakeNode) dialMaintenance(t *testing.T) talos.MaintenanceNode {
	t.Helper()
	node, err := talos.NewDialer(n.options()).DialMaintenance(t.Context(), loopback, n.pin)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

func (n *fakeNode) dialConfigured(t *testing.T, credentials talos.Credentials) talos.ConfiguredNode {
	t.Helper()
	node, err := talos.NewDialer(n.options()).DialConfigured(t.Context(), loopback, credentials)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

func (n *fakeNode) options() talos.DialOptions {
	return talos.DialOptions{Port: n.port, ConnectTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
}

func (n *fakeNode) ApplyConfiguration(_ context.Context, request *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	n.mu.Lock()
	n.applied = append(n.applied, request)
	n.mu.Unlock()
	return n.onApply(request)
}

func (n *fakeNode) Bootstrap(context.Context, *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, n.onBootstrap()
}

func (n *fakeNode) Read(request *machineapi.ReadRequest, stream machineapi.MachineService_ReadServer) error {
	if request.GetPath() != "/proc/sys/kernel/random/boot_id" {
		panic("read of " + request.GetPath())
	}
	return n.onRead(stream)
}

func (n *fakeNode) Kubeconfig(_ *emptyMessage, stream machineapi.MachineService_KubeconfigServer) error {
	return n.onKube(stream)
}

func (n *fakeNode) EtcdMemberList(ctx context.Context, request *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	return n.onMembers(ctx, request)
}

func (n *fakeNode) EtcdRemoveMemberByID(_ context.Context, request *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	return &machineapi.EtcdRemoveMemberByIDResponse{}, n.onRemove(request.GetMemberId())
}

func (n *fakeNode) EtcdStatus(context.Context, *emptyMessage) (*machineapi.EtcdStatusResponse, error) {
	return n.onStatus()
}

func (n *fakeNode) EtcdAlarmList(context.Context, *emptyMessage) (*machineapi.EtcdAlarmListResponse, error) {
	return n.onAlarms()
}

func (n *fakeNode) EtcdSnapshot(_ *machineapi.EtcdSnapshotRequest, stream machineapi.MachineService_EtcdSnapshotServer) error {
	return n.onSnapshot(stream)
}

func (n *fakeNode) ServiceList(context.Context, *emptyMessage) (*machineapi.ServiceListResponse, error) {
	return n.onServices()
}

// timeServer tells the time of a node.
type timeServer struct {
	timeapi.UnimplementedTimeServiceServer
	node *fakeNode
}

func (s timeServer) Time(context.Context, *emptyMessage) (*timeapi.TimeResponse, error) {
	if s.node.clock.IsZero() {
		return nil, status.Error(codes.Unknown, "error querying NTP server: i/o timeout")
	}
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{Localtime: timestamppb.New(s.node.clock)}}}, nil
}

const serverAuth = x509.ExtKeyUsageServerAuth

func pkixName(commonName string) pkix.Name { return pkix.Name{CommonName: commonName} }
