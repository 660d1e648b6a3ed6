// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// systemCritical is the value of the priority class system-cluster-critical.
const systemCritical int32 = 2_000_000_000

// StaticPod is the pod of a component as Talos hands it to the kubelet. version counts the changes of the component's
// configuration since boot, as the version of its resource does on a node; upgrades wait for it to appear in the mirror
// pod.
func StaticPod(component Component, version int) *corev1.Pod {
	priority := systemCritical

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      component.Name,
			Namespace: kubeSystem,
			Annotations: map[string]string{
				constants.AnnotationStaticPodConfigVersion:  strconv.Itoa(version),
				constants.AnnotationStaticPodSecretsVersion: "1",
			},
			Labels: map[string]string{
				"tier":                         "control-plane",
				"k8s-app":                      component.Name,
				"component":                    component.Name,
				"app.kubernetes.io/name":       component.Name,
				"app.kubernetes.io/version":    imageTag(component.Image),
				"app.kubernetes.io/component":  "control-plane",
				"app.kubernetes.io/managed-by": "Talos",
			},
		},
		Spec: corev1.PodSpec{
			HostNetwork:       true,
			Priority:          &priority,
			PriorityClassName: "system-cluster-critical",
			Containers: []corev1.Container{{
				Name:    component.Name,
				Image:   component.Image,
				Command: append([]string{"/usr/local/bin/" + component.Name}, component.Args...),
			}},
		},
	}
}

// imageTag is the version in an image reference, without a digest and without its v.
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")

	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return strings.TrimPrefix(image[colon+1:], "v")
	}

	return ""
}
