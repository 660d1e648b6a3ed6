// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
)

// kubernetesUpgraded moves Kubernetes on a control plane that is behind to the cluster's version, component by component, though
// the controller is killed on the way: static pods and the Node show the version in the end, and the machine wasn't rebooted.
func kubernetesUpgraded(t *testing.T, s *suite) {
	controlPlane := s.newcomer(t, cpOlder)
	from, before := controlPlane.Status.SettledVersions.Kubernetes, len(s.deeds(t, controlPlane))
	if from == localstack.KubernetesVersion {
		t.Fatalf("machine %s isn't behind: Kubernetes %s", controlPlane.Name, from)
	}
	operations := s.operator.IchorV1alpha1().TalosOperations()
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: "newer-kubernetes"}}
	operation.Spec.ClusterRef.Name, operation.Spec.KubernetesUpgrade = localstack.ClusterName, &v1alpha1.KubernetesUpgrade{Version: localstack.KubernetesVersion}
	operation.Spec.Machines = &v1alpha1.OperationMachines{Names: []string{controlPlane.Name}}
	if _, err := operations.Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	killed := false
	eventually(t, 6*time.Minute, func() error {
		now, err := operations.Get(t.Context(), operation.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := now.Status
		if !killed && len(status.Machines) > 0 && status.Machines[0].Step == v1alpha1.StepKubeControllerManager {
			if err := s.stack.Controllers()[0].Kill(); err != nil {
				t.Fatal(err)
			}
			killed = true
		}
		switch status.Phase {
		case v1alpha1.OperationSucceeded:
			if status.Plan.From != from || status.Plan.To != localstack.KubernetesVersion || status.Done != 1 {
				t.Errorf("it led from %s to %s on %d machines", status.Plan.From, status.Plan.To, status.Done)
			}
			return nil
		case v1alpha1.OperationPaused, v1alpha1.OperationFailed:
			t.Fatalf("operation %s is %s: %s", operation.Name, status.Phase, status.Message)
			return nil
		default:
			return fmt.Errorf("operation %s is %s: %s", operation.Name, status.Phase, status.Message)
		}
	})
	if !killed {
		t.Error("the controller wasn't killed on the way")
	}
	registered, err := s.kubernetes.CoreV1().Nodes().Get(t.Context(), controlPlane.Status.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if is := registered.Status.NodeInfo.KubeletVersion; is != localstack.KubernetesVersion || registered.Spec.Unschedulable {
		t.Errorf("Node %s has kubelet %s, unschedulable %t", registered.Name, is, registered.Spec.Unschedulable)
	}
	now := s.get(t, controlPlane.Name)
	if settled := now.Status.SettledVersions; settled.Kubernetes != localstack.KubernetesVersion || settled.KubeAPIServer+settled.KubeControllerManager+settled.KubeScheduler != "" {
		t.Errorf("machine %s is to have %+v", now.Name, *settled)
	}
	if drift := condition(now.Status.Conditions, v1alpha1.ConditionDriftDetected); drift.Status == metav1.ConditionTrue {
		t.Errorf("machine %s drifted: %s", now.Name, drift.Message)
	}
	for _, deed := range s.deeds(t, controlPlane)[before:] {
		if deed.What == node.DeedPull {
			continue
		}
		t.Errorf("machine %s did more than take configurations: %+v", now.Name, deed)
	}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		pod, err := s.kubernetes.CoreV1().Pods("kube-system").Get(t.Context(), component+"-"+controlPlane.Status.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+localstack.KubernetesVersion) {
			t.Errorf("%s runs %s", pod.Name, image)
		}
	}
	s.waitReady(t, time.Minute, controlPlane.Name)
}
