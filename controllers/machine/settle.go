// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kubernetesupgrade"
	"maesh.dev/ichor/pkg/machineconfig"
)

// newVersions decides which versions a machine is installed with: the cluster's intent. While an operation works on the cluster,
// or an upgrade of Kubernetes stopped half-way, the control planes may not run the intent yet, and no kubelet may be newer than
// any kube-apiserver: then it is the lowest version that a control plane has all of. A control plane's kubelet is upgraded after
// all kube-apiservers were seen to run the new version, so that one is never too new.
func (v *visit) newVersions(schematic string) (v1alpha1.SettledVersions, error) {
	versions := machineconfig.Settle(v.cluster, schematic)
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return versions, fmt.Errorf("list machines: %w", err)
	}
	lowest, moving := "", operationOn(v.cluster) != ""
	for _, m := range all {
		settled := m.Status.SettledVersions
		if m.Name == v.m.Name || m.Spec.ClusterRef.Name != v.cluster.Name || m.Spec.Role != v1alpha1.RoleControlPlane || !isApproved(m) || settled == nil {
			continue
		}
		moving = moving || len(machineconfig.KubernetesVersions(*settled)) > 1
		if lowest == "" || kubernetesupgrade.Older(settled.Kubernetes, lowest) {
			lowest = settled.Kubernetes
		}
	}
	if moving && kubernetesupgrade.Older(lowest, versions.Kubernetes) {
		versions.Kubernetes = lowest
	}
	return versions, nil
}
