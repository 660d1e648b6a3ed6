// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/bootstrap"
	"maesh.dev/ichor/test/localstack/balancer"
	"maesh.dev/ichor/test/localstack/serving"
	"maesh.dev/ichor/test/localstack/state"
)

// etcdPrefix is where Ichor's resources are in the cluster's etcd.
const etcdPrefix = "/ichor.maesh.dev"

func (s *Stack) pki(name string) string { return filepath.Join(s.dir.PKI(), name) }

func (s *Stack) tokenFile(account string) string { return s.pki(account + ".token") }

func (s *Stack) accountKubeconfig(account string) string { return s.pki(account + ".kubeconfig") }

// startAPIServers starts ichor-apiserver, with the cluster's own etcd below it and a balancer before it.
func (s *Stack) startAPIServers(ctx context.Context, access bootstrap.Access) error {
	if err := s.writeServerFiles(access); err != nil {
		return err
	}
	// A voter first: a learner answers almost nothing. The first control plane is the oldest member.
	s.balance(s.ports.etcd, balancer.Config{Name: "etcd", Backends: s.machineAddresses(2379), Policy: balancer.FirstHealthy})

	var backends []string
	for n := range s.options.APIServers {
		address := netip.AddrPortFrom(s.replicaAddress(n), apiServerPort)
		backends = append(backends, address.String())
		s.progress("starting ichor-apiserver %d of %d at https://%s", n+1, s.options.APIServers, address)
		c := s.start(apiServerName(n), "ichor-apiserver", s.apiServerArgs(n, address)...)
		s.apiServers = append(s.apiServers, c)
	}
	check := s.apiServerCheck()
	for n, c := range s.apiServers {
		if err := c.wait(ctx, func(ctx context.Context) error { return check(ctx, backends[n]) }); err != nil {
			return err
		}
	}
	s.balance(s.ports.api, balancer.Config{Name: "ichor-apiserver", Backends: backends, Check: check})
	return nil
}

func apiServerName(n int) string { return "ichor-apiserver-" + strconv.Itoa(n+1) }

// writeServerFiles writes certificates and policy. The authority's key stays in memory: each start makes a new one.
func (s *Stack) writeServerFiles(access bootstrap.Access) error {
	authority, err := serving.NewAuthority("ichor-apiserver of a local stack")
	if err != nil {
		return err
	}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}
	for n := range s.options.APIServers {
		addresses = append(addresses, s.replicaAddress(n).AsSlice())
	}
	pair, err := authority.Issue([]string{artifacts.ServingName, "localhost"}, addresses)
	if err != nil {
		return err
	}
	s.authority = authority
	for name, data := range map[string][]byte{
		"ichor-apiserver-ca.crt": authority.Certificate,
		"ichor-apiserver.crt":    pair.Certificate,
		"ichor-apiserver.key":    pair.Key,
		"etcd-ca.crt":            access.EtcdCA,
		"etcd.crt":               access.EtcdCert,
		"etcd.key":               access.EtcdKey,
		"audit-policy.yaml":      artifacts.AuditPolicy,
	} {
		if err := state.Write(s.pki(name), data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) apiServerArgs(n int, address netip.AddrPort) []string {
	kubeconfig := s.accountKubeconfig(artifacts.APIServerName)
	return []string{
		"--bind-address=" + address.Addr().String(),
		"--secure-port=" + strconv.Itoa(int(address.Port())),
		"--tls-cert-file=" + s.pki("ichor-apiserver.crt"),
		"--tls-private-key-file=" + s.pki("ichor-apiserver.key"),
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--etcd-servers=https://" + s.ports.etcd.Addr().String(),
		"--etcd-cafile=" + s.pki("etcd-ca.crt"),
		"--etcd-certfile=" + s.pki("etcd.crt"),
		"--etcd-keyfile=" + s.pki("etcd.key"),
		"--etcd-prefix=" + etcdPrefix,
		// The kube-apiserver compacts this etcd.
		"--etcd-compaction-interval=0",
		"--audit-policy-file=" + s.pki("audit-policy.yaml"),
		"--audit-log-path=" + s.APIServerAuditLog(n),
		"--audit-log-maxsize=100",
		"--audit-log-maxbackup=1",
	}
}

// apiServerCheck asks for readiness, which needs no rights, and verifies who answers.
func (s *Stack) apiServerCheck() balancer.Check {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.authority.Certificate)
	client := newHealthClient(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	return func(ctx context.Context, address string) error {
		return healthy(ctx, client, "https://"+address+"/readyz", http.StatusOK)
	}
}

// startControllers starts ichor-controller as often as asked; one of them leads.
func (s *Stack) startControllers(ctx context.Context) error {
	for n := range s.options.Controllers {
		address := netip.AddrPortFrom(s.replicaAddress(n), healthPort)
		s.progress("starting ichor-controller %d of %d", n+1, s.options.Controllers)
		args := append([]string{"--kubeconfig=" + s.accountKubeconfig(artifacts.ControllerName), "--health-address=" + address.String()}, s.options.ControllerArgs...)
		c := s.start("ichor-controller-"+strconv.Itoa(n+1), "ichor-controller", args...)
		s.controllers = append(s.controllers, c)
		client := &http.Client{Timeout: healthTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
		err := c.wait(ctx, func(ctx context.Context) error {
			return healthy(ctx, client, "http://"+address.String()+"/readyz", http.StatusOK)
		})
		if err != nil {
			return fmt.Errorf("start controllers: %w", err)
		}
	}
	return nil
}
