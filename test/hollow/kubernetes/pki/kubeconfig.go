// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clockSkew backdates client certificates, so that a server whose clock is a little behind accepts them.
const clockSkew = 10 * time.Second

// KubeconfigUser is who a kubeconfig is for.
type KubeconfigUser struct {
	// Endpoint is the API server's URL.
	Endpoint string
	// User and Context are the names in the file, each followed by @ and the cluster's name.
	User, Context string
	// CommonName and Organization become the Kubernetes user and group.
	CommonName, Organization string
	Lifetime                 time.Duration
}

// Kubeconfig issues a client certificate from the cluster's Kubernetes CA and wraps it in a kubeconfig (YAML).
func Kubeconfig(cluster config.ClusterConfig, user KubeconfigUser) ([]byte, error) {
	pair, err := kubernetesClient(cluster, user.CommonName, user.Organization, user.Lifetime)
	if err != nil {
		return nil, fmt.Errorf("make kubeconfig of %s: %w", user.User, err)
	}

	name := cluster.Name()
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   user.Endpoint,
			CertificateAuthorityData: Bundle(cluster.AcceptedCAs(), cluster.IssuingCA()),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user.User + "@" + name: {
			ClientCertificateData: pair.Crt,
			ClientKeyData:         pair.Key,
		}},
		Contexts: map[string]*clientcmdapi.Context{user.Context + "@" + name: {
			Cluster:   name,
			Namespace: "default",
			AuthInfo:  user.User + "@" + name,
		}},
		CurrentContext: user.Context + "@" + name,
	}

	text, err := clientcmd.Write(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig of %s: %w", user.User, err)
	}

	return text, nil
}

// AdminKubeconfig is what MachineService.Kubeconfig hands out.
func AdminKubeconfig(cluster config.ClusterConfig) ([]byte, error) {
	admin := cluster.AdminKubeconfig()

	return Kubeconfig(cluster, KubeconfigUser{
		Endpoint: cluster.Endpoint().String(), User: "admin", Context: "admin",
		CommonName: admin.CommonName(), Organization: admin.CertOrganization(), Lifetime: admin.CertLifetime(),
	})
}

// TalosAdmin issues the certificate a control plane uses for its own work in Kubernetes.
func TalosAdmin(cluster config.ClusterConfig) (tls.Certificate, error) {
	pair, err := kubernetesClient(cluster, constants.KubernetesTalosAdminCertCommonName,
		constants.KubernetesAdminCertOrganization, constants.KubernetesDefaultCertificateValidityDuration)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue the node's own admin certificate: %w", err)
	}

	return TLSCertificate(pair)
}

func kubernetesClient(cluster config.ClusterConfig, commonName, organization string, lifetime time.Duration) (*Pair, error) {
	now := time.Now()

	return issue(cluster.IssuingCA(),
		x509.CommonName(commonName), x509.Organization(organization),
		x509.NotBefore(now.Add(-clockSkew)), x509.NotAfter(now.Add(lifetime)),
		usage(stdx509.ExtKeyUsageClientAuth),
	)
}
