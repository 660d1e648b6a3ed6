// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

// Names of the components, which are their static pods' names, too.
const (
	APIServerName = "kube-apiserver"
	ManagerName   = "kube-controller-manager"
	SchedulerName = "kube-scheduler"
)

// Component is one program of the control plane.
type Component struct {
	Name string
	// Image is what the configuration asks for; the program that runs is another one.
	Image string
	// Args are the flags, without the program's name.
	Args []string
	// Env is added to the program's environment, as name=value.
	Env []string
	// Fingerprint changes when the component must be started again: with its image, its flags, its environment, its
	// configuration files, or the CAs and names its certificates are issued from.
	Fingerprint string
}

// Layout is where a node keeps what its control plane needs.
type Layout struct {
	Node pki.Identity
	// ConfigDir takes the rendered configuration files, which hold the encryption keys.
	ConfigDir pki.Folder
	Files     pki.KubernetesFiles
	// AuditLog is where the audit log goes unless the configuration names a file.
	AuditLog string
	// VarDir stands for the node's /var.
	VarDir string
	// Controllers are started beside the few that every story needs.
	Controllers []string
}

// fingerprint hashes everything a component depends on. PKI counts by its inputs, for each issue makes new keys.
func (c *Component) fingerprint(cluster config.ClusterConfig, layout Layout, files ...[]byte) error {
	names, addresses, err := pki.ServerNames(cluster, layout.Node)
	if err != nil {
		return err
	}

	var serviceAccount []byte
	if key := cluster.ServiceAccount(); key != nil {
		serviceAccount = key.Key
	}

	text, err := json.Marshal([]any{
		c.Image, c.Args, c.Env, files, names, addresses, serviceAccount,
		pki.Bundle(cluster.AcceptedCAs(), cluster.IssuingCA()),
		pki.Bundle(nil, cluster.IssuingCA()),
		pki.Bundle(nil, cluster.AggregatorCA()),
		pki.Bundle(nil, cluster.Etcd().CA()),
	})
	if err != nil {
		return fmt.Errorf("fingerprint of %s: %w", c.Name, err)
	}

	sum := sha256.Sum256(text)
	c.Fingerprint = hex.EncodeToString(sum[:])

	return nil
}

func environment(env map[string]string) []string {
	var list []string

	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}

	return list
}
