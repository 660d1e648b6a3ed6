// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// StaticPod is a static pod and whether it is ready.
type StaticPod struct {
	Pod   *corev1.Pod
	Ready bool
	// Started is when its containers were started.
	Started time.Time
}

const (
	annotationMirror = corev1.MirrorPodAnnotationKey
	annotationHash   = "kubernetes.io/config.hash"
	annotationSeen   = "kubernetes.io/config.seen"
	annotationSource = "kubernetes.io/config.source"
)

// MirrorName is the name of a static pod's mirror on a node.
func MirrorName(podName, nodeName string) string { return podName + "-" + nodeName }

// mirror makes the API show the static pods of a control plane and no others.
func (k *Kubelet) mirror(ctx context.Context, node *corev1.Node, pods []StaticPod) error {
	if !k.options.ControlPlane {
		return nil
	}

	// A node may list its own pods, but not ask for one that isn't bound to it (yet).
	list, err := k.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String(), ResourceVersion: "0",
	})
	if err != nil {
		return fmt.Errorf("list pods of node %s: %w", node.Name, err)
	}

	mirrors := map[string]*corev1.Pod{}

	for i := range list.Items {
		if pod := &list.Items[i]; pod.Annotations[annotationMirror] != "" {
			mirrors[pod.Namespace+"/"+pod.Name] = pod
		}
	}

	for _, static := range pods {
		wanted, mirrorErr := mirrorPod(static, node)
		if mirrorErr != nil {
			return mirrorErr
		}

		key := wanted.Namespace + "/" + wanted.Name
		if err = k.mirrorOne(ctx, wanted, mirrors[key], static); err != nil {
			return fmt.Errorf("mirror static pod %s of node %s: %w", key, node.Name, err)
		}

		delete(mirrors, key)
	}

	for key, pod := range mirrors {
		if err = k.deletePod(ctx, pod); err != nil {
			return fmt.Errorf("delete mirror %s of a static pod that is gone: %w", key, err)
		}
	}

	return nil
}

// mirrorOne makes one mirror. One whose definition changed is deleted and created anew, for mirrors can't be changed.
func (k *Kubelet) mirrorOne(ctx context.Context, wanted, current *corev1.Pod, static StaticPod) error {
	api := k.client.CoreV1().Pods(wanted.Namespace)

	if current != nil && current.Annotations[annotationMirror] != wanted.Annotations[annotationMirror] {
		if err := k.deletePod(ctx, current); err != nil {
			return err
		}

		current = nil
	}

	if current == nil {
		var err error
		if current, err = api.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
			return err
		}
	}

	reported := current.DeepCopy()
	k.fillPodStatus(&reported.Status, static, time.Now())

	if equality.Semantic.DeepEqual(current.Status, reported.Status) {
		return nil
	}

	_, err := api.UpdateStatus(ctx, reported, metav1.UpdateOptions{})

	return err
}

func (k *Kubelet) deletePod(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)

	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// mirrorPod is the mirror of a static pod: NodeRestriction lets a node create only pods that are bound to it, owned by
// its Node and marked as mirrors.
func mirrorPod(static StaticPod, node *corev1.Node) (*corev1.Pod, error) {
	definition, err := json.Marshal(static.Pod)
	if err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}

	sum := sha256.Sum256(definition)
	hash := hex.EncodeToString(sum[:16])
	controls := true

	pod := static.Pod.DeepCopy()
	pod.Name = MirrorName(pod.Name, node.Name)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controls,
	}}
	pod.Spec.NodeName = node.Name
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}

	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}

	pod.Annotations[annotationHash] = hash
	pod.Annotations[annotationMirror] = hash
	pod.Annotations[annotationSeen] = static.Started.UTC().Format(time.RFC3339Nano)
	pod.Annotations[annotationSource] = "http"

	return pod, nil
}

func (k *Kubelet) fillPodStatus(status *corev1.PodStatus, static StaticPod, now time.Time) {
	started := metav1.NewTime(static.Started.Truncate(time.Second))
	ready := corev1.ConditionFalse

	if static.Ready {
		ready = corev1.ConditionTrue
	}

	address := k.options.Address.String()

	status.Phase = corev1.PodRunning
	status.HostIP, status.HostIPs = address, []corev1.HostIP{{IP: address}}
	status.PodIP, status.PodIPs = address, []corev1.PodIP{{IP: address}}
	status.StartTime = &started
	status.QOSClass = corev1.PodQOSBestEffort

	for kind, value := range map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodReadyToStartContainers: corev1.ConditionTrue,
		corev1.PodInitialized:            corev1.ConditionTrue,
		corev1.PodScheduled:              corev1.ConditionTrue,
		corev1.ContainersReady:           ready,
		corev1.PodReady:                  ready,
	} {
		setPodCondition(status, now, kind, value)
	}

	status.ContainerStatuses = nil

	for _, container := range static.Pod.Spec.Containers {
		running := true

		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, Ready: static.Ready, Started: &running,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		})
	}
}

func setPodCondition(status *corev1.PodStatus, now time.Time, kind corev1.PodConditionType, value corev1.ConditionStatus) {
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if condition.Type != kind {
			continue
		}

		if condition.Status != value {
			condition.Status, condition.LastTransitionTime = value, metav1.NewTime(now.Truncate(time.Second))
		}

		return
	}

	status.Conditions = append(status.Conditions, corev1.PodCondition{
		Type: kind, Status: value, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}
