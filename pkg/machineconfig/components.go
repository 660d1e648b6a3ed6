// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"cmp"
	"fmt"
	"slices"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// KubernetesVersions are the versions of Kubernetes' components that a machine is to have, each once: more than one while an
// upgrade is on its way.
func KubernetesVersions(versions v1alpha1.SettledVersions) []string {
	all := []string{
		versions.Kubernetes, cmp.Or(versions.KubeAPIServer, versions.Kubernetes),
		cmp.Or(versions.KubeControllerManager, versions.Kubernetes), cmp.Or(versions.KubeScheduler, versions.Kubernetes),
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// setComponents gives the components of a control plane versions of their own. The base has the machine's version for all.
// Source: Talos, pkg/machinery/config/generate/init.go.
func setComponents(cluster *talosv1alpha1.ClusterConfig, versions v1alpha1.SettledVersions) {
	if cluster.APIServerConfig != nil && versions.KubeAPIServer != "" {
		cluster.APIServerConfig.ContainerImage = image(constants.KubernetesAPIServerImage, versions.KubeAPIServer)
	}
	if cluster.ControllerManagerConfig != nil && versions.KubeControllerManager != "" {
		cluster.ControllerManagerConfig.ContainerImage = image(constants.KubernetesControllerManagerImage, versions.KubeControllerManager)
	}
	if cluster.SchedulerConfig != nil && versions.KubeScheduler != "" {
		cluster.SchedulerConfig.ContainerImage = image(constants.KubernetesSchedulerImage, versions.KubeScheduler)
	}
}

// ComponentImage is the image of a component that Talos' generator writes.
func ComponentImage(component, version string) string {
	repository := constants.KubeletImage
	switch component {
	case "kube-apiserver":
		repository = constants.KubernetesAPIServerImage
	case "kube-controller-manager":
		repository = constants.KubernetesControllerManagerImage
	case "kube-scheduler":
		repository = constants.KubernetesSchedulerImage
	}
	return image(repository, version)
}

func image(repository, version string) string {
	return fmt.Sprintf("%s:%s", repository, withV(version))
}
