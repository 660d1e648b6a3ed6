// SPDX-License-Identifier: Apache-2.0

package pki

import (
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// KubernetesFiles are the paths of what the programs of a control plane of one node need.
type KubernetesFiles struct {
	// CA holds every accepted CA; IssuingCert and IssuingKey sign what the controller manager signs.
	CA, IssuingCert, IssuingKey   string
	ServerCert, ServerKey         string
	KubeletCert, KubeletKey       string
	AggregatorCA                  string
	FrontProxyCert, FrontProxyKey string
	EtcdCA                        string
	EtcdCert, EtcdKey             string
	ServiceAccountKey             string
	ServiceAccountPub             string
	// ManagerKubeconfig is the controller manager's; ManagerCert and ManagerKey serve its health endpoint. Talos lets
	// the controller manager make that one up; here a verifiable one saves the health check from trusting anybody.
	ManagerKubeconfig       string
	ManagerCert, ManagerKey string
	// SchedulerKubeconfig, SchedulerCert and SchedulerKey are the scheduler's likewise.
	SchedulerKubeconfig         string
	SchedulerCert, SchedulerKey string
}

// ServerNames are the subject alternative names of a kube-apiserver, in a stable order (Talos:
// secrets/kubernetes_cert_sans.go).
func ServerNames(cluster config.ClusterConfig, node Identity) (names []string, addresses []netip.Addr, err error) {
	serviceAddresses, err := cluster.Network().APIServerIPs()
	if err != nil {
		return nil, nil, fmt.Errorf("addresses of the service kubernetes: %w", err)
	}

	addresses = append(addresses, serviceAddresses...)
	addresses = append(addresses, node.Address, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	names = append(names, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc."+cluster.Network().DNSDomain(), "localhost", node.Hostname)

	for _, san := range append([]string{cluster.Endpoint().Hostname()}, cluster.CertSANs()...) {
		if address, parseErr := netip.ParseAddr(san); parseErr == nil {
			addresses = append(addresses, address)
		} else {
			names = append(names, san)
		}
	}

	slices.Sort(names)
	slices.SortFunc(addresses, netip.Addr.Compare)

	return slices.Compact(names), slices.Compact(addresses), nil
}

// WriteKubernetes issues every certificate of a node's Kubernetes control plane. localURL is the node's own API server.
func WriteKubernetes(folder Folder, cluster config.ClusterConfig, node Identity, localURL string) (KubernetesFiles, error) {
	w := writer{folder: folder, lifetime: time.Now().Add(constants.KubernetesDefaultCertificateValidityDuration)}

	var files KubernetesFiles

	names, addresses, err := ServerNames(cluster, node)
	if err != nil {
		return files, err
	}

	serverNames := []x509.Option{x509.DNSNames(names), x509.IPAddresses(stdAddresses(addresses))}

	files.CA = w.file("ca.crt", Bundle(cluster.AcceptedCAs(), cluster.IssuingCA()))
	files.IssuingCert, files.IssuingKey = w.pair("issuing-ca", cluster.IssuingCA())

	files.ServerCert, files.ServerKey = w.issue("apiserver", cluster.IssuingCA(), append(serverNames,
		x509.CommonName("kube-apiserver"), x509.Organization("kube-master"), usage(stdx509.ExtKeyUsageServerAuth))...)
	files.KubeletCert, files.KubeletKey = w.issue("apiserver-kubelet-client", cluster.IssuingCA(),
		x509.CommonName(constants.KubernetesAPIServerKubeletClientCommonName),
		x509.Organization(constants.KubernetesAdminCertOrganization), usage(stdx509.ExtKeyUsageClientAuth))
	files.ManagerCert, files.ManagerKey = w.issue("controller-manager", cluster.IssuingCA(), append(serverNames,
		x509.CommonName("kube-controller-manager"), usage(stdx509.ExtKeyUsageServerAuth))...)

	files.SchedulerCert, files.SchedulerKey = w.issue("scheduler", cluster.IssuingCA(), append(serverNames,
		x509.CommonName("kube-scheduler"), usage(stdx509.ExtKeyUsageServerAuth))...)

	files.AggregatorCA = w.file("aggregator-ca.crt", Bundle(nil, cluster.AggregatorCA()))
	files.FrontProxyCert, files.FrontProxyKey = w.issue("front-proxy-client", cluster.AggregatorCA(),
		x509.CommonName("front-proxy-client"), usage(stdx509.ExtKeyUsageClientAuth))

	files.EtcdCA = w.file("etcd-ca.crt", Bundle(nil, cluster.Etcd().CA()))
	files.EtcdCert, files.EtcdKey = w.issue("etcd-client", cluster.Etcd().CA(),
		x509.CommonName("kube-apiserver"), usage(stdx509.ExtKeyUsageClientAuth))

	private, public, err := serviceAccountKeys(cluster.ServiceAccount())
	if err != nil {
		return files, err
	}

	files.ServiceAccountKey = w.file("service-account.key", private)
	files.ServiceAccountPub = w.file("service-account.pub", public)

	for _, program := range []struct {
		user, file string
		path       *string
	}{
		{constants.KubernetesControllerManagerOrganization, "controller-manager.kubeconfig", &files.ManagerKubeconfig},
		{constants.KubernetesSchedulerOrganization, "scheduler.kubeconfig", &files.SchedulerKubeconfig},
	} {
		kubeconfig, writeErr := Kubeconfig(cluster, KubeconfigUser{
			Endpoint: localURL, User: program.user, Context: "default",
			CommonName: program.user, Organization: program.user,
			Lifetime: constants.KubernetesDefaultCertificateValidityDuration,
		})
		if writeErr != nil {
			return files, writeErr
		}

		*program.path = w.file(program.file, kubeconfig)
	}

	return files, errors.Join(w.errors...)
}

// writer collects the errors of many small steps.
type writer struct {
	folder   Folder
	lifetime time.Time
	errors   []error
}

func (w *writer) file(name string, content []byte) string {
	path, err := w.folder.Write(name, content)
	w.note(err)

	return path
}

func (w *writer) pair(name string, pair *Pair) (crt, key string) {
	if pair == nil || len(pair.Key) == 0 {
		w.note(fmt.Errorf("%s: %w", name, errNoKey))

		return "", ""
	}

	crt, key, err := w.folder.writePair(name, pair)
	w.note(err)

	return crt, key
}

func (w *writer) issue(name string, ca *Pair, options ...x509.Option) (crt, key string) {
	pair, err := issue(ca, append(slices.Clone(options), x509.NotAfter(w.lifetime))...)
	if err != nil {
		w.note(fmt.Errorf("issue certificate %s: %w", name, err))

		return "", ""
	}

	return w.pair(name, pair)
}

func (w *writer) note(err error) {
	if err != nil {
		w.errors = append(w.errors, err)
	}
}

// serviceAccountKeys returns the private and the public key, which the configuration holds as one (RSA or ECDSA).
func serviceAccountKeys(key *x509.PEMEncodedKey) (private, public []byte, err error) {
	if key == nil {
		return nil, nil, errors.New("the machine configuration has no service account key; only control planes have one")
	}

	parsed, err := key.GetKey()
	if err != nil {
		return nil, nil, fmt.Errorf("read service account key: %w", err)
	}

	return parsed.GetPrivateKeyPEM(), parsed.GetPublicKeyPEM(), nil
}

func stdAddresses(addresses []netip.Addr) []net.IP {
	ips := make([]net.IP, len(addresses))
	for i, address := range addresses {
		ips[i] = address.AsSlice()
	}

	return ips
}
