// SPDX-License-Identifier: Apache-2.0

package hollowtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/profile"
)

// Cluster makes configurations and client certificates of one cluster.
type Cluster struct {
	tb    testing.TB
	input *generate.Input
	// Bundle are the cluster's secrets.
	Bundle *secrets.Bundle
}

// bundleContract is one whose service account key is ECDSA: an RSA key of 4096 bits takes seconds on a busy machine, and
// nothing else about the secrets differs from those of 1.13.
var bundleContract = config.TalosVersion1_6

// NewCluster makes the secrets of a cluster with its endpoint on a control plane's address. The installer image is of
// the version that the machines run.
func NewCluster(tb testing.TB, endpoint netip.Addr, installDisk string) *Cluster {
	tb.Helper()
	return NewClusterOf(tb, endpoint, installDisk, profile.DefaultVersion, constants.DefaultKubernetesVersion)
}

// NewClusterOf is NewCluster with the versions of Talos to install and of Kubernetes to run. The configurations are such
// as 1.12 reads, which every later version does too.
func NewClusterOf(tb testing.TB, endpoint netip.Addr, installDisk, talosVersion, kubernetesVersion string) *Cluster {
	tb.Helper()
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), bundleContract)
	if err != nil {
		tb.Fatal(err)
	}
	input, err := generate.NewInput("rack", "https://"+netip.AddrPortFrom(endpoint, 6443).String(), kubernetesVersion,
		generate.WithSecretsBundle(bundle), generate.WithVersionContract(config.TalosVersion1_12), generate.WithInstallDisk(installDisk),
		generate.WithInstallImage("factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:"+talosVersion))
	if err != nil {
		tb.Fatal(err)
	}
	return &Cluster{tb: tb, input: input, Bundle: bundle}
}

// Config is the configuration of a machine type.
func (c *Cluster) Config(t machinetype.Type) []byte {
	c.tb.Helper()
	cfg, err := c.input.Config(t)
	if err != nil {
		c.tb.Fatal(err)
	}
	data, err := cfg.Bytes()
	if err != nil {
		c.tb.Fatal(err)
	}
	return data
}

// TLS is what a client with the roles needs: a certificate of the cluster, and the cluster's CA to check the node with.
func (c *Cluster) TLS(roles ...role.Role) *tls.Config {
	c.tb.Helper()
	certificate, err := c.Bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(roles...), time.Hour)
	if err != nil {
		c.tb.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate.Crt, certificate.Key)
	if err != nil {
		c.tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.Bundle.Certs.OS.Crt)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
}

// Connect is a client of a node with the roles.
func (c *Cluster) Connect(n *node.Node, roles ...role.Role) *client.Client {
	c.tb.Helper()
	return Dial(c.tb, n.Address(), c.TLS(roles...))
}

// Dial is a client of an address with any TLS configuration, closed at the end of the test.
func Dial(tb testing.TB, address netip.Addr, cfg *tls.Config) *client.Client {
	tb.Helper()
	c, err := client.New(tb.Context(), client.WithTLSConfig(cfg), client.WithEndpoints(address.String()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Insecure is a client as someone has without any certificate: good for maintenance only.
func Insecure(tb testing.TB, n *node.Node) *client.Client {
	tb.Helper()
	// Whose certificate it is does not matter to tests of what maintenance serves.
	return Dial(tb, n.Address(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
}

// Pull has a machine pull an image into Talos' own store.
func Pull(ctx context.Context, t testing.TB, c *client.Client, image string) {
	t.Helper()
	stream, err := c.ImageClient.Pull(ctx, &machine.ImageServicePullRequest{
		Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}, ImageRef: image,
	})
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("pull %s: %v", image, err)
	}
}
