// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Wanted is what the machine configuration wants of the Node.
type Wanted struct {
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
}

// apply writes what the configuration wants to the Node. A refusal is no failure of the round: a worker that wants a
// label it may not give itself stays without it, and is heard about once. A conflict is: the next round has a newer Node.
func (k *Kubelet) apply(ctx context.Context, node *corev1.Node, wanted Wanted) error {
	dressed, err := dress(node, wanted)
	if err == nil && !equality.Semantic.DeepEqual(node, dressed) {
		client := k.client
		if k.admin != nil {
			client = k.admin
		}

		_, err = client.CoreV1().Nodes().Update(ctx, dressed, metav1.UpdateOptions{})
	}

	if apierrors.IsConflict(err) {
		return err
	}

	text := ""
	if err != nil {
		text = err.Error()
	}

	if text != "" && text != k.applyError {
		k.options.Logger.Warn("apply labels, annotations and taints", "node", k.options.NodeName, "error", err)
	}

	k.applyError = text

	return nil
}

// dress returns the Node as the configuration wants it. What Talos has set itself is listed in annotations, so that it
// can be taken back, and so that what others set is left alone (Talos: k8s/node_apply.go).
func dress(node *corev1.Node, wanted Wanted) (*corev1.Node, error) {
	dressed := node.DeepCopy()
	if dressed.Annotations == nil {
		dressed.Annotations = map[string]string{}
	}

	if dressed.Labels == nil {
		dressed.Labels = map[string]string{}
	}

	for _, part := range []struct {
		annotation string
		apply      func(owned map[string]bool)
	}{
		{constants.AnnotationOwnedLabels, func(owned map[string]bool) { merge(dressed.Labels, owned, wanted.Labels) }},
		{constants.AnnotationOwnedAnnotations, func(owned map[string]bool) { merge(dressed.Annotations, owned, wanted.Annotations) }},
		{constants.AnnotationOwnedTaints, func(owned map[string]bool) {
			dressed.Spec.Taints = mergeTaints(dressed.Spec.Taints, owned, wanted.Taints)
		}},
	} {
		owned, err := readOwned(dressed.Annotations[part.annotation])
		if err != nil {
			return nil, fmt.Errorf("read annotation %s of node %s: %w", part.annotation, node.Name, err)
		}

		part.apply(owned)

		if err = writeOwned(dressed.Annotations, part.annotation, owned); err != nil {
			return nil, fmt.Errorf("write annotation %s of node %s: %w", part.annotation, node.Name, err)
		}
	}

	return dressed, nil
}

// merge sets what is wanted unless somebody else holds the key with another value, and removes what is owned and no
// longer wanted.
func merge(current map[string]string, owned map[string]bool, wanted map[string]string) {
	for key, value := range wanted {
		if held, exists := current[key]; exists && held != value && !owned[key] {
			continue
		}

		current[key] = value
		owned[key] = true
	}

	for key := range owned {
		if _, still := wanted[key]; !still {
			delete(current, key)
			delete(owned, key)
		}
	}
}

// mergeTaints is merge for taints, which Talos tells apart by their key alone.
func mergeTaints(current []corev1.Taint, owned map[string]bool, wanted []corev1.Taint) []corev1.Taint {
	for _, taint := range wanted {
		i := slices.IndexFunc(current, func(t corev1.Taint) bool { return t.Key == taint.Key })

		switch {
		case i < 0:
			current = append(current, taint)
			owned[taint.Key] = true
		case owned[taint.Key]:
			current[i].Value, current[i].Effect = taint.Value, taint.Effect
		case current[i].Value == taint.Value && current[i].Effect == taint.Effect:
			owned[taint.Key] = true
		}
	}

	return slices.DeleteFunc(current, func(t corev1.Taint) bool {
		isWanted := slices.ContainsFunc(wanted, func(w corev1.Taint) bool { return w.Key == t.Key })
		if !owned[t.Key] || isWanted {
			return false
		}

		delete(owned, t.Key)

		return true
	})
}

func readOwned(text string) (map[string]bool, error) {
	owned := map[string]bool{}

	if text == "" {
		return owned, nil
	}

	var keys []string
	if err := json.Unmarshal([]byte(text), &keys); err != nil {
		return nil, err
	}

	for _, key := range keys {
		owned[key] = true
	}

	return owned, nil
}

func writeOwned(annotations map[string]string, annotation string, owned map[string]bool) error {
	if len(owned) == 0 {
		delete(annotations, annotation)

		return nil
	}

	text, err := json.Marshal(slices.Sorted(maps.Keys(owned)))
	if err != nil {
		return err
	}

	annotations[annotation] = string(text)

	return nil
}
