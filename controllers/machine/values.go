// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// SecretValues reads what patches take from the Secrets in Ichor's namespace that were meant for it.
type SecretValues struct {
	Secrets corev1client.SecretsGetter
}

// Value reads one value. Secrets without the label are refused: whoever may write patches must not be able to have the
// cluster's own keys written into a machine's configuration.
func (s SecretValues) Value(ctx context.Context, ref v1alpha1.SecretKeyReference) (string, error) {
	secret, err := s.Secrets.Secrets(v1alpha1.SystemNamespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", &machineconfig.ValueError{Reason: fmt.Sprintf("there is no Secret %s in namespace %s; create it", ref.Name, v1alpha1.SystemNamespace)}
	case err != nil:
		return "", fmt.Errorf("read Secret %s/%s: %w", v1alpha1.SystemNamespace, ref.Name, err)
	case secret.Labels[v1alpha1.PatchValuesLabel] != "true":
		return "", &machineconfig.ValueError{Reason: fmt.Sprintf("Secret %s/%s is not meant for patches; label it %s=true if it is", v1alpha1.SystemNamespace, ref.Name, v1alpha1.PatchValuesLabel)}
	}
	value, there := secret.Data[ref.Key]
	if !there || len(value) == 0 {
		return "", &machineconfig.ValueError{Reason: fmt.Sprintf("Secret %s/%s has nothing under the key %s", v1alpha1.SystemNamespace, ref.Name, ref.Key)}
	}
	return string(value), nil
}
