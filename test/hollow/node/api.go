// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"maesh.dev/ichor/test/hollow/access"
	"maesh.dev/ichor/test/hollow/facts"
	"maesh.dev/ichor/test/hollow/pki"
)

const (
	// apiDrain is how long calls that are under way may take when the listener is reopened (Talos: internal/app/apid/service.go).
	apiDrain = 10 * time.Second
	// lastWords is how long answers may take to get out at the end of a boot; a real machine takes longer than that to stop.
	lastWords = 500 * time.Millisecond
	// certificateLife is half of a certificate's validity, after which it is issued anew.
	certificateLife = 12 * time.Hour
	// trustdRetry is how long a worker waits between two attempts to get its certificate.
	trustdRetry = time.Second
)

// api is apid: the listener on port 50000, opened, reopened and certified as the node's state demands.
type api struct {
	boot     *boot
	identity *pki.Identity
	wake     chan struct{}

	mu     sync.Mutex
	server *grpc.Server
	mode   string
	// served is closed when the running server has ended.
	served chan struct{}

	// What the certificate was issued for; only the loop uses these.
	issuedFor issue
	issuedAt  time.Time
	openAt    []netip.AddrPort
	openMode  string
}

// issue is what a certificate depends on.
type issue struct {
	mode      string
	sans      pki.SANs
	authority pki.Authority
	// round changes when a new certificate is demanded for no other reason.
	round int
}

func (i issue) equal(o issue) bool {
	return i.mode == o.mode && i.round == o.round && i.sans.FQDN == o.sans.FQDN && slices.Equal(i.sans.Addresses, o.sans.Addresses) &&
		slices.Equal(i.sans.DNSNames, o.sans.DNSNames) && i.authority.SameCAs(o.authority)
}

func newAPI(b *boot) *api {
	return &api{boot: b, identity: &pki.Identity{}, wake: make(chan struct{}, 1)}
}

// kick makes the loop look again.
func (a *api) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// state tells whether the API is open, and how.
func (a *api) state() (listening bool, mode string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.server != nil, a.mode
}

// loop keeps the listener as it should be until the boot ends.
func (a *api) loop(ctx context.Context) {
	defer func() {
		if a.boot.isOrderly() {
			a.close(lastWords, nil)
		} else {
			a.close(0, nil)
		}
	}()
	ticker := time.NewTicker(certificateLife)
	defer ticker.Stop()
	var retry <-chan time.Time
	// complaint is the last error that was logged: each is told once, however often it is met.
	complaint := ""
	for {
		if err := a.reconcile(ctx); err != nil {
			if text := err.Error(); text != complaint {
				a.boot.log.Warn("the Talos API is not open yet", "error", err)
				complaint = text
			}
			retry = time.After(trustdRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-ticker.C:
			a.issuedAt = time.Time{}
		case <-retry:
			retry = nil
		}
	}
}

func (a *api) reconcile(ctx context.Context) error {
	want, addresses, ok := a.wanted()
	if !ok {
		return nil
	}
	if a.openMode != "" && (a.openMode != want.mode || !slices.Equal(a.openAt, addresses)) {
		// Old connections end with the old listener; nobody can connect meanwhile.
		a.close(apiDrain, ctx.Done())
	}
	if ctx.Err() != nil {
		return nil
	}
	if a.issuedAt.IsZero() || !a.issuedFor.equal(want) {
		if err := a.certify(ctx, want); err != nil {
			return err
		}
	}
	if a.openMode == "" {
		return a.open(ctx, want.mode, addresses)
	}
	return nil
}

// wanted is what the node's state asks of the API; not ok while apid has no configuration yet.
func (a *api) wanted() (issue, []netip.AddrPort, bool) {
	v := a.boot.view()
	if !v.APIOpen || !v.Address.IsValid() {
		return issue{}, nil, false
	}
	addresses := []netip.AddrPort{netip.AddrPortFrom(v.Address.Addr(), constants.ApidPort)}
	for _, also := range v.Also {
		addresses = append(addresses, netip.AddrPortFrom(also.Addr(), constants.ApidPort))
	}
	want := issue{mode: ModeMaintenance, sans: sansOf(v), round: a.boot.node.faults.certificateRound()}
	if v.Maintenance {
		want.sans.FQDN = ""
		return want, addresses, true
	}
	want.mode = ModeConfigured
	root := facts.OSRoot(v.Active)
	want.authority = pki.Authority{Issuing: root.IssuingCA, Accepted: root.AcceptedCAs, Token: root.Token}
	want.sans.Addresses = append(want.sans.Addresses, root.CertSANIPs...)
	want.sans.DNSNames = append(want.sans.DNSNames, root.CertSANDNSNames...)
	return want, addresses, true
}

func sansOf(v facts.View) pki.SANs {
	s := pki.SANs{FQDN: v.Hostname}
	for _, p := range v.Seen {
		s.Addresses = append(s.Addresses, p.Addr())
	}
	s.Addresses = append(s.Addresses, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"))
	if v.Hostname != "" {
		s.DNSNames = append(s.DNSNames, v.Hostname)
		if v.Domainname != "" {
			s.FQDN = v.Hostname + "." + v.Domainname
			s.DNSNames = append(s.DNSNames, s.FQDN)
		}
	}
	return s
}

// certify gets the certificate that the mode demands and presents it from now on.
func (a *api) certify(ctx context.Context, want issue) error {
	switch {
	case want.mode == ModeMaintenance:
		leaf, err := a.boot.authority.Leaf(want.sans)
		if err != nil {
			return err
		}
		a.identity.Set(leaf, nil)
	case a.boot.isControlPlane():
		leaf, err := want.authority.SelfIssue(want.sans)
		if err != nil {
			return err
		}
		pool, err := want.authority.Pool()
		if err != nil {
			return err
		}
		a.identity.Set(leaf, pool)
	default:
		issued, err := want.authority.AskTrustd(ctx, controlPlaneAddresses(a.boot.view()), want.sans)
		if err != nil {
			return fmt.Errorf("get a certificate for the API: %w", err)
		}
		a.identity.Set(issued.Certificate, issued.Clients)
	}
	a.issuedFor, a.issuedAt = want, time.Now()
	if fingerprint, err := pki.Fingerprint(a.identity.Certificate()); err == nil {
		a.boot.kernelLog.printf("[talos] server certificate issued fingerprint=%s", fingerprint)
		a.boot.log.Info("server certificate issued", "mode", want.mode, "fingerprint", fingerprint)
	}
	a.boot.node.notify()
	return nil
}

func (a *api) open(ctx context.Context, mode string, addresses []netip.AddrPort) error {
	listeners, err := listen(ctx, addresses)
	if err != nil {
		return fmt.Errorf("open the Talos API: %w", err)
	}
	injector := access.Injector(access.Maintenance)
	if mode == ModeConfigured {
		injector = access.Certificate
	}
	unary, stream := injector.Unary, injector.Stream
	if mode == ModeMaintenance && a.boot.profile.MaintenanceServer {
		unary, stream = injector.UnaryUnchecked, injector.StreamUnchecked
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(a.identity.ServerConfig())),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.StatsHandler(a.boot.node.traffic),
		grpc.ChainUnaryInterceptor(a.boot.routeUnary, unary, a.boot.delayUnary),
		grpc.ChainStreamInterceptor(a.boot.routeStream, stream, a.boot.delayStream),
		grpc.WaitForHandlers(true),
	)
	a.boot.register(server, mode)
	served := make(chan struct{})
	var serving sync.WaitGroup
	for _, listener := range listeners {
		serving.Go(func() {
			if err := server.Serve(&faultyListener{Listener: listener, node: a.boot.node}); err != nil && ctx.Err() == nil {
				a.boot.log.Debug("API listener ended", "error", err)
			}
		})
	}
	go func() {
		defer close(served)
		serving.Wait()
	}()
	a.mu.Lock()
	a.server, a.mode, a.served = server, mode, served
	a.mu.Unlock()
	a.openMode, a.openAt = mode, addresses
	a.boot.log.Info("Talos API open", "mode", mode, "addresses", addresses)
	a.boot.apidHealth(true)
	return nil
}

// listen opens all addresses or none.
func listen(ctx context.Context, addresses []netip.AddrPort) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
		if err != nil {
			for _, opened := range listeners {
				_ = opened.Close() // nobody was accepted yet
			}
			return nil, err
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}

// close ends the listener; calls that are under way get the given time, unless that is cut short.
func (a *api) close(drain time.Duration, cut <-chan struct{}) {
	a.mu.Lock()
	server, served := a.server, a.served
	a.server, a.mode, a.served = nil, "", nil
	a.mu.Unlock()
	a.openMode, a.openAt = "", nil
	if server == nil {
		return
	}
	if a.boot.ctx.Err() == nil {
		a.boot.apidHealth(false)
	}
	if drain > 0 {
		a.drain(server, drain, cut)
	}
	server.Stop()
	<-served
}

// drain lets calls end that are under way. A boot that ends by itself meanwhile leaves them their last words, a power cut
// nothing.
func (a *api) drain(server *grpc.Server, patience time.Duration, cut <-chan struct{}) {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		server.GracefulStop()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-cut:
		if a.boot.isOrderly() {
			timer.Reset(lastWords)
			select {
			case <-drained:
			case <-timer.C:
			}
		}
	}
	server.Stop()
	<-drained
}
