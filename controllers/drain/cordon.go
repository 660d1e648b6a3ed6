// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// conflicts is how often a Node that somebody else changed meanwhile is looked at again. A kubelet writes its Node's
	// status every few seconds.
	conflicts = 5
)

// Drainer cordons, drains and uncordons Nodes of one cluster. It is safe for concurrent use.
type Drainer struct {
	Client kubernetes.Interface
	// Clock is the real one if it is nil.
	Clock clock.PassiveClock
}

func (d Drainer) now() time.Time {
	if d.Clock == nil {
		return time.Now()
	}
	return d.Clock.Now()
}

// Cordon keeps new pods away from a Node, and tells whether it is by's to uncordon, the UID of an operation: the Node
// wasn't cordoned, or was cordoned by by before. That is written in the one request that cordons, so that whoever goes on
// after a crash finds it on the Node. A Node that anybody else has cordoned is left as it is.
func (d Drainer) Cordon(ctx context.Context, node string, by types.UID) (byUs bool, err error) {
	err = d.change(ctx, "cordon", node, func(n *corev1.Node) map[string]any {
		mark := n.Annotations[v1alpha1.CordonedByAnnotation]
		if n.Spec.Unschedulable {
			byUs = mark == string(by)
			return nil
		}
		byUs = true
		return map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{v1alpha1.CordonedByAnnotation: string(by)}},
			"spec":     map[string]any{"unschedulable": true},
		}
	})
	return byUs && err == nil, err
}

// Uncordon lets new pods onto a Node again if by cordoned it, and else leaves it as it is. A Node that is gone is no
// error.
func (d Drainer) Uncordon(ctx context.Context, node string, by types.UID) error {
	err := d.change(ctx, "uncordon", node, func(n *corev1.Node) map[string]any {
		if n.Annotations[v1alpha1.CordonedByAnnotation] != string(by) {
			return nil
		}
		return map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{v1alpha1.CordonedByAnnotation: nil}},
			"spec":     map[string]any{"unschedulable": nil},
		}
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// change patches a Node with what decide says of it, on the condition that it is still the version that was judged. nil
// changes nothing.
func (d Drainer) change(ctx context.Context, verb, node string, decide func(*corev1.Node) map[string]any) error {
	var err error
	for range conflicts {
		if err = d.changeOnce(ctx, node, decide); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s Node %s: %w", verb, node, err)
	}
	return nil
}

func (d Drainer) changeOnce(ctx context.Context, node string, decide func(*corev1.Node) map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := d.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch := decide(found)
	if patch == nil {
		return nil
	}
	meta := patch["metadata"].(map[string]any)
	meta["uid"], meta["resourceVersion"] = found.UID, found.ResourceVersion
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	_, err = d.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, data, metav1.PatchOptions{FieldManager: "ichor-controller"})
	return err
}
