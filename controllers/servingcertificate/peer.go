// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// The names that the two programs know each other by, whatever address they are at.
const (
	// ControllerServerName is ichor-controller's, where ichor-apiserver asks it for a machine's log.
	ControllerServerName = "ichor-controller." + v1alpha1.SystemNamespace + ".svc"
	apiServerName        = ServiceName + "." + v1alpha1.SystemNamespace + ".svc"
)

const (
	// peerLifetime is how long a certificate of the controller's is good: it is in memory only, and made anew at half life.
	peerLifetime = 24 * time.Hour
	// peerRefresh is how often the authority is read: it may have been replaced.
	peerRefresh = time.Minute
)

// Peer is ichor-controller's end of a connection with ichor-apiserver: both have certificates of the authority that issues
// ichor-apiserver's. Only the bearer of that certificate is let in.
type Peer struct {
	Secrets corev1client.SecretsGetter
	Clock   clock.PassiveClock

	mu       sync.Mutex
	config   *tls.Config
	readAt   time.Time
	renewAt  time.Time
	signedBy *x509.Certificate
}

// ServerConfig is for a server that asks for its settings at each connection.
func (p *Peer) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return p.current(hello.Context()) },
	}
}

// current are the settings of now.
func (p *Peer) current(ctx context.Context) (*tls.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	if p.config != nil && now.Sub(p.readAt) < peerRefresh && now.Before(p.renewAt) {
		return p.config, nil
	}
	known, err := p.authorities(ctx)
	if err != nil {
		return nil, err
	}
	p.readAt = now
	if p.config != nil && now.Before(p.renewAt) && known.current.certificate.Equal(p.signedBy) {
		p.config = p.settings(p.config.Certificates, known)
		return p.config, nil
	}
	until := now.Add(peerLifetime)
	if known.signedUntil.Before(until) {
		until = known.signedUntil // it is kept for no longer after it is replaced
	}
	if !until.After(now) {
		return nil, errors.New("the authority of ichor-apiserver's serving certificate is about to be replaced")
	}
	issued, err := known.current.issue([]string{ControllerServerName}, now, until)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(issued.chain, issued.key)
	if err != nil {
		return nil, fmt.Errorf("use a certificate of one's own: %w", err)
	}
	p.config, p.renewAt, p.signedBy = p.settings([]tls.Certificate{pair}, known), now.Add(until.Sub(now)/2), known.current.certificate
	return p.config, nil
}

// authorities reads the authority.
func (p *Peer) authorities(ctx context.Context) (authorities, error) {
	secret, err := p.Secrets.Secrets(v1alpha1.SystemNamespace).Get(ctx, AuthoritySecretName, metav1.GetOptions{})
	if err != nil {
		return authorities{}, fmt.Errorf("read the authority of ichor-apiserver's serving certificate: %w", err)
	}
	var o observed
	o.readAuthorities(secret)
	if o.authorities.current.certificate == nil {
		return authorities{}, fmt.Errorf("the authority of ichor-apiserver's serving certificate can't be used: %w", errors.Join(o.faults...))
	}
	return o.authorities, nil
}

func (p *Peer) settings(certificates []tls.Certificate, known authorities) *tls.Config {
	pool := x509.NewCertPool()
	for _, each := range known.bundle() {
		pool.AddCert(each)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"http/1.1"},
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !slices.Contains(state.PeerCertificates[0].DNSNames, apiServerName) {
				return fmt.Errorf("the certificate isn't that of %s", apiServerName)
			}
			return nil
		},
	}
}
