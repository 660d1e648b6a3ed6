// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// SystemNamespace and ComponentLabel are where Talos' static pods are. Source: Talos, k8s/control_plane_static_pod.go.
	SystemNamespace = "kube-system"
	ComponentLabel  = "k8s-app"
	// ConfigVersionAnnotation counts the configurations of a static pod.
	// Source: Talos, pkg/machinery/constants.AnnotationStaticPodConfigVersion.
	ConfigVersionAnnotation = "talos.dev/config-version"
)

// StaticPod is the one of a component on a Node; nil if it isn't there.
func StaticPod(component, node string, pods []corev1.Pod) *corev1.Pod {
	at := slices.IndexFunc(pods, func(pod corev1.Pod) bool {
		return node != "" && pod.Spec.NodeName == node && IsStaticPod(component, &pod)
	})
	if at < 0 {
		return nil
	}
	return &pods[at]
}

// IsStaticPod tells whether a pod is one that Talos runs of a component.
func IsStaticPod(component string, pod *corev1.Pod) bool {
	return pod.Labels[ComponentLabel] == component && pod.Annotations[ConfigVersionAnnotation] != ""
}

// ImageVersion is the tag of a static pod's image, without a flavour; empty if it has none.
func ImageVersion(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	image, _, _ := strings.Cut(pod.Spec.Containers[0].Image, "@")
	colon := strings.LastIndex(image, ":")
	if colon <= strings.LastIndex(image, "/") {
		return ""
	}
	tag := image[colon+1:]
	for _, flavour := range []string{"-fat", "-slim"} {
		tag = strings.TrimSuffix(tag, flavour)
	}
	return tag
}
