// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// ProbeOptions bound a probe. The zero value of each means its default.
type ProbeOptions struct {
	// ConnectTimeout bounds the TCP connection. Default 2s: enough for one lost SYN, which kernels repeat after 1s.
	ConnectTimeout time.Duration
	// HandshakeTimeout bounds the TLS handshake. Default 3s.
	HandshakeTimeout time.Duration
	// FirstByteTimeout bounds the wait for what the peer says after the handshake. Default 2s.
	FirstByteTimeout time.Duration
	// ConfirmTimeout bounds the one read that tells Talos from another gRPC server. Default 3s.
	ConfirmTimeout time.Duration
	// Port of the Talos API. Default Port.
	Port uint16
}

// NewProber returns the prober for real networks.
func NewProber(options ProbeOptions) Prober {
	return prober{ProbeOptions{
		ConnectTimeout:   cmp.Or(options.ConnectTimeout, 2*time.Second),
		HandshakeTimeout: cmp.Or(options.HandshakeTimeout, 3*time.Second),
		FirstByteTimeout: cmp.Or(options.FirstByteTimeout, 2*time.Second),
		ConfirmTimeout:   cmp.Or(options.ConfirmTimeout, 3*time.Second),
		Port:             cmp.Or(options.Port, Port),
	}}
}

type prober struct{ options ProbeOptions }

// talosOrganization is the organization of the authority that signs a configured node's certificate, unless the cluster
// was given its own. Source: Talos, pkg/machinery/config/generate/secrets.
const talosOrganization = "talos"

// probeBudget is how much a peer may send to a probe.
const probeBudget = 1 << 20

func (p prober) Probe(ctx context.Context, address netip.Addr) Probe {
	address = address.Unmap()
	conn, err := p.connect(ctx, address)
	if err != nil {
		return Probe{Address: address, Class: v1alpha1.HostUnreachable, Message: connectWords(err)}
	}
	// The peer is not told goodbye: it may have filled the connection's buffers and never read.
	defer conn.Close()
	release := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer release()

	secure := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{http2Protocol},
		// Classification only: who answers isn't known yet, and nothing is sent but the handshake and, where the
		// certificate leaves a doubt, a read.
		InsecureSkipVerify: true, //nolint:gosec
	})
	_ = conn.SetDeadline(time.Now().Add(p.options.HandshakeTimeout))
	if err := secure.HandshakeContext(ctx); err != nil {
		return Probe{Address: address, Class: v1alpha1.HostNotTalos, Message: handshakeWords(err)}
	}
	return p.classify(ctx, address, secure)
}

func (p prober) connect(ctx context.Context, address netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.ConnectTimeout)
	defer cancel()
	return connectTCP(ctx, address, p.options.Port)
}

// classify judges a peer by its certificate and by what it says first. In TLS 1.3 the client's side of the handshake is
// done before the server has judged the client, so a refusal comes with the first read.
func (p prober) classify(ctx context.Context, address netip.Addr, secure *tls.Conn) Probe {
	state := secure.ConnectionState()
	notTalos := func(words string) Probe {
		return Probe{Address: address, Class: v1alpha1.HostNotTalos, Message: words}
	}
	if state.NegotiatedProtocol != http2Protocol {
		return notTalos("TLS without HTTP/2")
	}
	leaf := state.PeerCertificates[0]
	talos := func(class v1alpha1.HostClass, words string) Probe {
		return Probe{Address: address, Class: class, Fingerprint: FingerprintOf(leaf), Message: words}
	}

	first := make([]byte, frameHeaderLength)
	_ = secure.SetDeadline(time.Now().Add(p.options.FirstByteTimeout))
	n, err := io.ReadFull(secure, first)
	first = first[:n]
	switch {
	case wantsCertificate(err):
		if issuedByTalos(leaf) {
			return talos(v1alpha1.HostAlreadyConfigured, "a configured Talos machine")
		}
		return talos(v1alpha1.HostAlreadyConfigured, "a server that demands a client certificate, as a configured Talos machine does")
	case err != nil && !isTimeout(err) && issuedByTalos(leaf):
		// The refusal can be overtaken by the end of the connection.
		return talos(v1alpha1.HostAlreadyConfigured, "a configured Talos machine")
	case err != nil && !isTimeout(err):
		return notTalos("a TLS server that closes the connection")
	case len(first) == frameHeaderLength && !isSettingsFrame(first):
		return notTalos("a TLS server that agrees to HTTP/2 and doesn't speak it")
	case len(first) == frameHeaderLength && leaf.Subject.CommonName == constants.MaintenanceServiceCommonName:
		return talos(v1alpha1.HostMaintenance, "a Talos machine in maintenance mode")
	}
	if words := p.confirm(ctx, address, secure, first); words != "" {
		return notTalos(words)
	}
	return talos(v1alpha1.HostMaintenance, "a Talos machine that answers without a client certificate")
}

// confirm reads a resource that every version of Talos lets anybody read in maintenance mode, and says in words what
// answered instead; nothing if it was Talos. (Version is no use: 1.12 refuses it in maintenance mode.)
func (p prober) confirm(ctx context.Context, address netip.Addr, secure *tls.Conn, pending []byte) string {
	ctx, cancel := context.WithTimeout(ctx, p.options.ConfirmTimeout)
	defer cancel()
	_ = secure.SetDeadline(time.Now().Add(p.options.ConfirmTimeout))
	channel, err := overTLS(ctx, address, secure, pending, probeBudget)
	if err != nil {
		return "a TLS server that agrees to HTTP/2 and doesn't speak it"
	}
	defer channel.Close()
	_, err = cosi.NewStateClient(channel).Get(ctx, &cosi.GetRequest{
		Namespace: runtime.NamespaceName, Type: runtime.MachineStatusType, Id: runtime.MachineStatusID, Options: &cosi.GetOptions{},
	})
	return confirmWords(err)
}

// confirmWords says what a server is by its answer to a read of Talos' state.
func confirmWords(err error) string {
	text := status.Convert(err).Message()
	switch code := Code(err); {
	case code == codes.OK, code == codes.NotFound:
		return ""
	case strings.Contains(text, "HTTP status code"), strings.Contains(text, "content-type"):
		return "an HTTPS server"
	case code == codes.DeadlineExceeded:
		return "an HTTP/2 server that doesn't answer"
	case code == codes.Unavailable, code == codes.Internal, code == codes.ResourceExhausted:
		return "an HTTP/2 server that isn't Talos"
	default:
		return "a gRPC server that isn't Talos"
	}
}

func issuedByTalos(leaf *x509.Certificate) bool {
	return slices.Contains(leaf.Issuer.Organization, talosOrganization)
}
