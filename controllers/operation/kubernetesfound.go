// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/kubernetesupgrade"
	"maesh.dev/ichor/pkg/machineconfig"
)

// kubernetesFound is what runs in a cluster, and what may keep it from being upgraded.
type kubernetesFound struct {
	// machines are all members of the cluster.
	machines []kubernetesupgrade.Machine
	findings []kubernetesupgrade.Finding
}

// runsAll tells whether everything on a machine runs a version.
func (f *kubernetesFound) runsAll(name, to string) bool {
	for _, m := range f.machines {
		if m.Name != name {
			continue
		}
		for _, version := range m.Running {
			if !kubernetesupgrade.Same(version, to) {
				return false
			}
		}
		return len(m.Running) > 0
	}
	return false
}

// gatherKubernetes reads what runs from static pods and Nodes, never from what kube-apiserver says of itself: that is one of
// several. What configurations give the components is looked at where it may matter.
func (r *run) gatherKubernetes(ctx context.Context, p *planning) error {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	nodes, err := r.Nodes.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	pods, err := r.Pods.Pods(kube.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: componentSelector()})
	if err != nil {
		return fmt.Errorf("list the static pods: %w", err)
	}
	patches, err := r.patches.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list configuration patches: %w", err)
	}
	slices.SortFunc(p.all, func(a, b *v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) })
	to := targetOf(p)
	p.kubernetes = &kubernetesFound{}
	for _, m := range p.all {
		if !isMember(m, p.cluster) {
			continue
		}
		found := kubernetesupgrade.Machine{
			Name: m.Name, ControlPlane: m.Spec.Role == v1alpha1.RoleControlPlane, Talos: m.Status.TalosVersion,
			Running: runningOn(m, nodes.Items, pods.Items),
		}
		if m.Status.SettledVersions != nil {
			if err := lookAtSettings(p.cluster, m, patches, &found, to); err != nil {
				p.kubernetes.findings = append(p.kubernetes.findings, kubernetesupgrade.Finding{
					Check: kubernetesupgrade.CheckRemoved, Blocks: true, Message: fmt.Sprintf("%s: its configuration can't be rendered: %s", m.Name, err)})
			}
		}
		p.kubernetes.machines = append(p.kubernetes.machines, found)
	}
	r.gatherAPIs(ctx, p, pods.Items, to)
	return nil
}

// gatherAPIs asks the kube-apiservers whose minor version the upgrade leaves for what they were asked for. One that can't be
// asked says nothing: that is told.
func (r *run) gatherAPIs(ctx context.Context, p *planning, pods []corev1.Pod, to string) {
	inUse := kubernetesupgrade.InUse{}
	for _, m := range p.all {
		if !isMember(m, p.cluster) || m.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}
		pod := kube.StaticPod(string(kubernetesupgrade.APIServer), m.Status.NodeName, pods)
		if pod == nil || !kubernetesupgrade.CrossesMinor(kube.ImageVersion(pod), to) {
			continue // whether it is seen to run is another check
		}
		requested, err := r.deprecatedAPIs(ctx, m, pod)
		if err != nil {
			p.kubernetes.findings = append(p.kubernetes.findings, kubernetesupgrade.Finding{Check: kubernetesupgrade.CheckAPIVersions, Message: fmt.Sprintf(
				"%s: whether API versions are in use that %s doesn't serve isn't known, as %s; look by yourself: kubectl get --raw /metrics | grep apiserver_requested_deprecated_apis",
				m.Name, to, err)})
			continue
		}
		inUse[m.Name] = requested
	}
	p.kubernetes.findings = append(p.kubernetes.findings, kubernetesupgrade.CheckAPIs(inUse, to)...)
}

func (r *run) deprecatedAPIs(ctx context.Context, m *v1alpha1.TalosMachine, pod *corev1.Pod) ([]kubernetesupgrade.Requested, error) {
	address := apiServerAddress(m, pod)
	if address == "" {
		return nil, errors.New("the address of its kube-apiserver isn't known")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	asked, err := r.APIServers.DeprecatedAPIs(ctx, address)
	var requested []kubernetesupgrade.Requested
	for _, api := range asked {
		requested = append(requested, kubernetesupgrade.Requested{
			API: kubernetesupgrade.API{Group: api.Group, Version: api.Version, Resource: api.Resource}, Announced: api.RemovedRelease,
		})
	}
	return requested, err
}

// apiServerAddress is where the kube-apiserver of a static pod listens; empty if that isn't known.
func apiServerAddress(m *v1alpha1.TalosMachine, pod *corev1.Pod) string {
	host, port := pod.Status.HostIP, "6443"
	if host == "" && len(m.Status.Addresses) > 0 {
		host = m.Status.Addresses[0]
	}
	if host == "" {
		return ""
	}
	for _, container := range pod.Spec.Containers {
		for _, argument := range slices.Concat(container.Command, container.Args) {
			if given, is := strings.CutPrefix(argument, "--secure-port="); is {
				port = given
			}
		}
	}
	return net.JoinHostPort(host, port)
}

// installedTalos looks whether the Talos that a machine is to have runs the version, where another one runs: its configuration
// is rendered for both.
func installedTalos(m *v1alpha1.TalosMachine, to string) []kubernetesupgrade.Finding {
	settled := m.Status.SettledVersions
	if settled == nil || settled.Talos == "" || m.Status.TalosVersion == "" || sameVersion(settled.Talos, m.Status.TalosVersion) {
		return nil
	}
	err := machineconfig.CheckKubernetesOn(kubernetesupgrade.WithV(to), settled.Talos)
	if err == nil {
		return nil
	}
	return []kubernetesupgrade.Finding{{Check: kubernetesupgrade.CheckTalos, Blocks: true, Message: fmt.Sprintf(
		"%s runs Talos %s, and is to have %s: %s; finish the upgrade of Talos first", m.Name, m.Status.TalosVersion, settled.Talos, err)}}
}

func componentSelector() string {
	var names []string
	for _, component := range kubernetesupgrade.ControlPlane {
		names = append(names, string(component))
	}
	return fmt.Sprintf("%s in (%s)", kube.ComponentLabel, strings.Join(names, ","))
}

// runningOn are the versions of the components that are seen to run on a machine.
func runningOn(m *v1alpha1.TalosMachine, nodes []corev1.Node, pods []corev1.Pod) map[kubernetesupgrade.Component]string {
	running := map[kubernetesupgrade.Component]string{}
	for i := range nodes {
		if nodes[i].Name == m.Status.NodeName && m.Status.NodeName != "" {
			running[kubernetesupgrade.Kubelet] = nodes[i].Status.NodeInfo.KubeletVersion
		}
	}
	for _, component := range kubernetesupgrade.ControlPlane {
		if pod := kube.StaticPod(string(component), m.Status.NodeName, pods); pod != nil {
			running[component] = kube.ImageVersion(pod)
		}
	}
	return running
}

// lookAtSettings notes what a machine's configuration gives the components that goes away at some version. Images aren't
// looked at: no patch may set those.
func lookAtSettings(cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine, patches []*v1alpha1.TalosConfigPatch, found *kubernetesupgrade.Machine, to string) error {
	settings, err := machineconfig.ComponentSettings(cluster, m, patches, func(s machineconfig.ComponentSetting) bool {
		return kubernetesupgrade.Goes(settingOf(s), to)
	})
	for _, s := range settings {
		found.Settings = append(found.Settings, settingOf(s))
	}
	return err
}

func settingOf(s machineconfig.ComponentSetting) kubernetesupgrade.Setting {
	setting := kubernetesupgrade.Setting{Component: kubernetesupgrade.Component(s.Component), Name: s.Name(), Where: s.Where}
	switch {
	case s.Gate != "":
		setting.Kind = kubernetesupgrade.FeatureGate
	case s.Plugin != "":
		setting.Kind = kubernetesupgrade.AdmissionPlugin
	default:
		setting.Kind = kubernetesupgrade.Flag
	}
	return setting
}
