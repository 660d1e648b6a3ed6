// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/kubernetesupgrade"
	"maesh.dev/ichor/pkg/machineconfig"
)

// moveComponent moves one component of a control plane to the version, and waits until it is seen to run it. What is
// changed is the version that the machine is to have: the controller of machines renders and applies it.
func (v *visit) moveComponent(ctx context.Context, component kubernetesupgrade.Component) (outcome, error) {
	m, came, err := v.settled(ctx, component, func() (outcome, error) { return v.snapshot(ctx) })
	if err != nil || m == nil {
		return came, err
	}
	listing, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods, err := v.Pods.Pods(kube.SystemNamespace).List(listing, metav1.ListOptions{
		LabelSelector: kube.ComponentLabel + "=" + string(component),
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", m.Status.NodeName).String(),
	})
	if err != nil {
		return waiting("the pod of its %s can't be read, as kube-apiserver doesn't answer: %s", component, err)
	}
	pod := kube.StaticPod(string(component), m.Status.NodeName, pods.Items)
	to := v.op.Status.Plan.To
	switch {
	case pod == nil:
		return waiting("Node %s has no static pod of %s%s", m.Status.NodeName, component, unapplied(m))
	case !kubernetesupgrade.Same(kube.ImageVersion(pod), to):
		return waiting("its %s is %s still%s", component, kube.ImageVersion(pod), unapplied(m))
	case !podReady(pod):
		return waiting("its %s %s isn't Ready yet", component, to)
	case unapplied(m) != "":
		return waiting("its %s is %s%s", component, to, unapplied(m))
	case !isReady(m):
		return waiting("its %s is %s, and the machine isn't Ready yet: %s", component, to, notReady(m))
	default:
		return done("its %s is %s, configuration %s", component, to, pod.Annotations[kube.ConfigVersionAnnotation])
	}
}

// moveKubelet moves a machine's kubelet to the version, and waits until its Node says so.
func (v *visit) moveKubelet(ctx context.Context) (outcome, error) {
	m, came, err := v.settled(ctx, kubernetesupgrade.Kubelet, func() (outcome, error) { return outcome{done: true}, nil })
	if err != nil || m == nil {
		return came, err
	}
	node, err := v.node(ctx)
	if err != nil {
		return waiting("%s", err)
	}
	if node == nil {
		return waiting("the machine has no Node%s", unapplied(m))
	}
	to, is := v.op.Status.Plan.To, node.Status.NodeInfo.KubeletVersion
	switch ready, why := kube.NodeReady(node); {
	case !kubernetesupgrade.Same(is, to):
		return waiting("its kubelet is %s still%s", is, unapplied(m))
	case !ready:
		return waiting("%s", why)
	case unapplied(m) != "":
		return waiting("its kubelet is %s%s", to, unapplied(m))
	case !isReady(m):
		return waiting("its kubelet is %s, and the machine isn't Ready yet: %s", to, notReady(m))
	default:
		return done("its kubelet is %s", to)
	}
}

// settled sees to it that a component is to have the version. The machine is returned once that is so. Before it is changed
// everything is asked that may have come up since the gates. The write is on the version of the object that was read, so that
// another process that does the same is noticed; that the step is on its way is in the journal, by which the controller of
// machines knows that it may apply it.
func (v *visit) settled(ctx context.Context, component kubernetesupgrade.Component, before func() (outcome, error)) (*v1alpha1.TalosMachine, outcome, error) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	machines := v.Client.IchorV1alpha1().TalosMachines()
	m, err := machines.Get(asking, v.m.Name, metav1.GetOptions{})
	if err != nil {
		return nil, outcome{}, fmt.Errorf("read machine %s: %w", v.m.Name, err)
	}
	if m.UID != v.m.UID || m.Status.SettledVersions == nil {
		came, err := waiting("it isn't known yet which versions it is to have")
		return nil, came, err
	}
	to := v.op.Status.Plan.To
	if component == kubernetesupgrade.Kubelet && hasAll(m.Status.SettledVersions, to) ||
		component != kubernetesupgrade.Kubelet && kubernetesupgrade.Same(versionOf(m.Status.SettledVersions, component), to) {
		return m, outcome{}, nil
	}
	if v.cancelled() {
		return nil, outcome{needless: true, message: "the operation was cancelled before anything was changed"}, nil
	}
	// The operation may have waited for days since it was planned.
	if is := laterThan(to, m.Status.SettledVersions, component); is != "" {
		came, err := failed("its %s is to be %s by now, and Kubernetes can't be taken back to %s; cancel the operation and make another", component, is, to)
		return nil, came, err
	}
	if why := unapplied(m); why != "" {
		came, err := waiting("nothing is changed until it runs what was decided last%s", why)
		return nil, came, err
	}
	if why, err := v.ownGates(ctx); err != nil || why != "" {
		return nil, outcome{message: why}, err
	}
	if came, err := before(); err != nil || !came.done {
		return nil, came, err
	}
	settle(m.Status.SettledVersions, component, to)
	writing, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := machines.UpdateStatus(writing, m, metav1.UpdateOptions{}); err != nil {
		return nil, outcome{}, fmt.Errorf("write which version machine %s is to have: %w", v.m.Name, err)
	}
	return nil, outcome{acted: true, message: fmt.Sprintf("its %s is to be %s", component, to)}, nil
}

// laterThan is the version that settling a component on another one would take it back from; empty if it wouldn't. With the
// kubelet's, all are settled.
func laterThan(to string, settled *v1alpha1.SettledVersions, component kubernetesupgrade.Component) string {
	versions := []string{versionOf(settled, component)}
	if component == kubernetesupgrade.Kubelet {
		versions = machineconfig.KubernetesVersions(*settled)
	}
	for _, is := range versions {
		if kubernetesupgrade.Older(to, is) {
			return is
		}
	}
	return ""
}

// unapplied says why a machine doesn't run the configuration that it should; empty if it does.
func unapplied(m *v1alpha1.TalosMachine) string {
	applied := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionConfigApplied)
	if applied == nil || applied.Status == metav1.ConditionTrue {
		return ""
	}
	return "; its configuration isn't applied: " + applied.Message
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
