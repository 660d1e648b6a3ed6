// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podsRun has the scheduler find a node for a pod, which runs there, also after a power cut, and is gone when it is deleted.
func podsRun(t *testing.T, cp, worker *box) {
	t.Helper()

	client, _ := cp.client(t)
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)

	// A namespace's account is made a moment after it.
	waitUntil(t, "pod is made", func() error {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
		}, metav1.CreateOptions{})

		return err
	})

	runs := func(restarts int32) {
		t.Helper()
		waitUntil(t, "pod runs", func() error {
			pod, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				return err
			}

			if len(pod.Status.ContainerStatuses) == 0 || podReady(*pod) != "True" || pod.Status.PodIP == "" ||
				pod.Spec.NodeName != "worker-1" || pod.Status.ContainerStatuses[0].RestartCount != restarts {
				return fmt.Errorf("pod on node %q, want worker-1, started again %d times: %+v", pod.Spec.NodeName, restarts, pod.Status)
			}

			return nil
		})
	}

	runs(0)
	worker.stop(t, true)
	worker.boot(t)
	worker.wait(t, "up again", isUp)
	runs(1)

	if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	waitUntil(t, "pod is gone", func() error {
		_, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(errors.New("the pod is there"), err)
	})
}
