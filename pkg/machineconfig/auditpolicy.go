// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"sync"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/artifacts"
)

// auditPolicy is Ichor's policy for the audit log of the kube-apiserver: the very file that the artifacts have.
var auditPolicy = sync.OnceValues(func() (talosv1alpha1.Unstructured, error) {
	var policy talosv1alpha1.Unstructured
	if err := yaml.Unmarshal(artifacts.KubeAPIServerAuditPolicy, &policy.Object); err != nil {
		return policy, fmt.Errorf("read the audit policy of the artifacts: %w", err)
	}
	return policy, nil
})

// setAuditPolicy writes the policy into the configuration of a control plane; workers have no API server.
func setAuditPolicy(v1 *talosv1alpha1.Config) error {
	if v1.ClusterConfig.APIServerConfig == nil {
		return nil
	}
	policy, err := auditPolicy()
	if err != nil {
		return err
	}
	policy.DeepCopyInto(&v1.ClusterConfig.APIServerConfig.AuditPolicyConfig)
	return nil
}
