// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack/state"
)

// Dir is the stack's folder.
func (s *Stack) Dir() state.Dir { return s.dir }

// Program is the path of one of the stack's programs.
func (s *Stack) Program(name string) string { return filepath.Join(s.options.BinDir, name) }

// Fleet are the stack's machines.
func (s *Stack) Fleet() *fleet.Fleet { return s.fleet }

// First is the machine that became the first control plane.
func (s *Stack) First() *fleet.Machine { return s.first }

// Range is what a scan has to cover to find every machine of the stack; nobody else uses its addresses.
func (s *Stack) Range() netip.Prefix { return s.ports.loopback.Prefix() }

// Admin reaches the cluster as its administrator.
func (s *Stack) Admin() *rest.Config { return rest.CopyConfig(s.admin) }

// As reaches the cluster as one of its people: viewer or operator.
func (s *Stack) As(person string) (*rest.Config, error) {
	data, err := os.ReadFile(s.dir.KubeconfigOf(person))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", person, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", person, err)
	}
	return config, nil
}

// Replicas are how many ichor-apiservers there are.
func (s *Stack) Replicas() int { return len(s.apiServers) }

// Direct reaches one ichor-apiserver itself instead of the kube-apiserver before it, as the same user: it knows the
// certificates of the cluster's users too.
func (s *Stack) Direct(config *rest.Config, replica int) *rest.Config {
	direct := rest.CopyConfig(config)
	direct.Host = "https://" + netip.AddrPortFrom(s.replicaAddress(replica), apiServerPort).String()
	direct.TLSClientConfig.CAData, direct.TLSClientConfig.CAFile = nil, s.serving.File("ca.crt")
	return direct
}

// APIServers are the ichor-apiservers.
func (s *Stack) APIServers() []*Component { return s.apiServers }

// Controllers are the ichor-controllers, Kubernetes' leader among them.
func (s *Stack) Controllers() []*Component { return s.controllers }

// ControllerHealth is where a controller serves its health and its metrics.
func (s *Stack) ControllerHealth(replica int) string {
	return netip.AddrPortFrom(s.replicaAddress(replica), healthPort).String()
}

// controllerStreams is where a controller serves machines' logs.
func (s *Stack) controllerStreams(replica int) string {
	return netip.AddrPortFrom(s.replicaAddress(replica), streamPort).String()
}

// APIServerAuditLog is the own audit log of an ichor-apiserver, with bodies.
func (s *Stack) APIServerAuditLog(replica int) string {
	return filepath.Join(s.dir.Logs(), apiServerName(replica)+".audit.log")
}
