// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/kubernetesupgrade"
	"maesh.dev/ichor/pkg/machineconfig"
)

// NodeClient reads Nodes, and what runs on them.
type NodeClient interface {
	corev1client.NodesGetter
	corev1client.PodsGetter
}

// apiServersTimeout bounds one look at which kube-apiservers run.
const apiServersTimeout = 10 * time.Second

// reasonOlderKubernetes says of a machine that joins that it is given an older Kubernetes than its cluster is to have.
const reasonOlderKubernetes = "OlderKubernetes"

// settleOn are the versions that the machine is to have from now on; false if that can't be told, which is written down.
func (v *visit) settleOn(ctx context.Context, schematicID string) (v1alpha1.SettledVersions, bool) {
	if settled := v.m.Status.SettledVersions; settled != nil {
		return *settled, true
	}
	versions, fault, err := v.settleAtFirst(ctx, schematicID)
	switch {
	case err != nil:
		v.block(v1alpha1.ReasonRenderFailed, err.Error()+"; trying again", pollWaiting)
	case fault != nil:
		v.renderFailed(fault)
	}
	return versions, err == nil && fault == nil
}

// settleAtFirst chooses the versions of a machine that has none yet: what its cluster is to have, and of Kubernetes nothing that
// is newer than a kube-apiserver that runs. The error is one of reading what runs; fault says why no version fits.
func (v *visit) settleAtFirst(ctx context.Context, schematicID string) (versions v1alpha1.SettledVersions, fault, err error) {
	versions = machineconfig.Settle(v.cluster, schematicID)
	running, err := v.apiServers(ctx)
	if err != nil {
		return versions, nil, err
	}
	given, because, fault := kubernetesupgrade.Joining(versions.Kubernetes, running)
	if fault != nil {
		return versions, fault, nil
	}
	if because != "" {
		v.tell(corev1.EventTypeNormal, reasonOlderKubernetes, "the machine is given Kubernetes %s: %s", given, because)
	}
	versions.Kubernetes = given
	return versions, nil, nil
}

// apiServers are those of the cluster: what the static pods are, and, of control planes where none is seen, what they may come
// back with. They are asked of the API itself: an upgrade may have gone on since a cache was filled.
func (v *visit) apiServers(ctx context.Context) ([]kubernetesupgrade.Running, error) {
	ctx, cancel := context.WithTimeout(ctx, apiServersTimeout)
	defer cancel()
	component := string(kubernetesupgrade.APIServer)
	pods, err := v.NodeClient.Pods(kube.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: kube.ComponentLabel + "=" + component})
	if err != nil {
		return nil, fmt.Errorf("list the static pods of %s: %w", component, err)
	}
	var running []kubernetesupgrade.Running
	for i := range pods.Items {
		if pod := &pods.Items[i]; kube.IsStaticPod(component, pod) {
			running = append(running, kubernetesupgrade.Running{Where: pod.Spec.NodeName, Version: kube.ImageVersion(pod)})
		}
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, m := range all {
		settled := m.Status.SettledVersions
		if m.UID == v.m.UID || m.Spec.Role != v1alpha1.RoleControlPlane || m.Spec.ClusterRef.Name != v.cluster.Name || settled == nil ||
			kube.StaticPod(component, m.Status.NodeName, pods.Items) != nil {
			continue
		}
		running = append(running, kubernetesupgrade.Running{Where: m.Name, Version: settled.Kubernetes},
			kubernetesupgrade.Running{Where: m.Name, Version: cmp.Or(settled.KubeAPIServer, settled.Kubernetes)})
	}
	return running, nil
}
