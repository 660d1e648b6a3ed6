// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/bootstrap"
	"maesh.dev/ichor/test/localstack/balancer"
	"maesh.dev/ichor/test/localstack/mount"
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
	if err := s.mountServingCertificate(ctx); err != nil {
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

// writeServerFiles writes certificates and policy.
func (s *Stack) writeServerFiles(access bootstrap.Access) error {
	for name, data := range map[string][]byte{
		"etcd-ca.crt":       access.EtcdCA,
		"etcd.crt":          access.EtcdCert,
		"etcd.key":          access.EtcdKey,
		"audit-policy.yaml": artifacts.AuditPolicy,
	} {
		if err := state.Write(s.pki(name), data); err != nil {
			return err
		}
	}
	return nil
}

// mountServingCertificate waits for the certificate that the controller issues, as a pod that mounts it does.
func (s *Stack) mountServingCertificate(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return fmt.Errorf("client for the serving certificate: %w", err)
	}
	s.progress("waiting for the serving certificate of ichor-apiserver")
	var run func(context.Context)
	s.serving, run = mount.Secret(client, artifacts.Namespace, artifacts.ServingSecretName, s.pki("ichor-apiserver-tls"), s.logger)
	s.group.Go(func() { run(s.background) })
	if err := s.serving.Wait(ctx); err != nil {
		return fmt.Errorf("serving certificate of ichor-apiserver: %w; the log of the controller that issues it is %s", err, s.dir.Log("ichor-controller-1"))
	}
	return nil
}

func (s *Stack) apiServerArgs(n int, address netip.AddrPort) []string {
	kubeconfig := s.accountKubeconfig(artifacts.APIServerName)
	return append([]string{
		"--bind-address=" + address.Addr().String(),
		"--secure-port=" + strconv.Itoa(int(address.Port())),
		"--tls-cert-file=" + s.serving.File("tls.crt"),
		"--tls-private-key-file=" + s.serving.File("tls.key"),
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
		"--node-stream-url=https://" + s.controllerStreams(0),
		"--node-stream-ca-file=" + s.serving.File("ca.crt"),
		// Nobody waits for a balancer far away here, and a person who presses Ctrl-C doesn't either.
		"--shutdown-delay-duration=0s",
		"--shutdown-watch-termination-grace-period=0s",
	}, s.options.APIServerArgs...)
}

// apiServerCheck asks for readiness, which needs no rights, and verifies who answers.
func (s *Stack) apiServerCheck() balancer.Check {
	return func(ctx context.Context, address string) error {
		authorities, err := os.ReadFile(s.serving.File("ca.crt"))
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authorities)
		client := newHealthClient(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
		return healthy(ctx, client, "https://"+address+"/readyz", http.StatusOK)
	}
}

// startControllers starts ichor-controller as often as asked; one of them leads. They come before ichor-apiserver, whose
// certificate they issue.
func (s *Stack) startControllers() {
	names := []string{"localhost", "127.0.0.1"}
	for n := range s.options.APIServers {
		names = append(names, s.replicaAddress(n).String())
	}
	for n := range s.options.Controllers {
		s.progress("starting ichor-controller %d of %d", n+1, s.options.Controllers)
		args := append([]string{
			"--kubeconfig=" + s.accountKubeconfig(artifacts.ControllerName),
			"--health-address=" + s.ControllerHealth(n),
			"--node-stream-address=" + s.controllerStreams(n),
			"--etcd-snapshot-dir=" + s.dir.Snapshots(),
			"--serving-certificate-names=" + strings.Join(names, ","),
		}, s.options.ControllerArgs...)
		s.controllers = append(s.controllers, s.start("ichor-controller-"+strconv.Itoa(n+1), "ichor-controller", args...))
	}
}

// awaitControllers waits until every controller could lead.
func (s *Stack) awaitControllers(ctx context.Context) error {
	client := &http.Client{Timeout: healthTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for n, c := range s.controllers {
		err := c.wait(ctx, func(ctx context.Context) error {
			return healthy(ctx, client, "http://"+s.ControllerHealth(n)+"/readyz", http.StatusOK)
		})
		if err != nil {
			return fmt.Errorf("start controllers: %w", err)
		}
	}
	return nil
}
