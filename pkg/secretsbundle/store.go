// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// ErrMissing is a bundle that isn't there: no such Secret, or it lacks the key.
var ErrMissing = errors.New("secrets bundle is missing")

// ErrInvalid is a bundle that is there and can't be used.
var ErrInvalid = errors.New("secrets bundle is invalid")

// ErrExists is a bundle that was there when one was to be made.
var ErrExists = errors.New("secrets bundle exists")

// ErrChanged is a bundle that isn't the one the cluster was made with.
var ErrChanged = errors.New("secrets bundle has changed")

// Store keeps bundles in Secrets.
type Store struct {
	Secrets corev1client.SecretsGetter
}

// Load reads the bundle that ref names. The error is ErrMissing, ErrInvalid or the API's own.
func (s Store) Load(ctx context.Context, ref v1alpha1.SecretReference) (*Bundle, error) {
	secret, err := s.Secrets.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no Secret %s/%s", ErrMissing, ref.Namespace, ref.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	text := secret.Data[v1alpha1.SecretsBundleKey]
	if len(text) == 0 {
		return nil, fmt.Errorf("%w: Secret %s/%s has no key %s", ErrMissing, ref.Namespace, ref.Name, v1alpha1.SecretsBundleKey)
	}
	bundle, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: Secret %s/%s: %w", ErrInvalid, ref.Namespace, ref.Name, err)
	}
	return bundle, nil
}

// Create stores a new bundle by one create. A Secret that exists is left as it is: ErrExists.
func (s Store) Create(ctx context.Context, ref v1alpha1.SecretReference, clusterName string, bundle *Bundle) error {
	text, err := bundle.Marshal()
	if err != nil {
		return err
	}
	_, err = s.Secrets.Secrets(ref.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   ref.Namespace,
			Name:        ref.Name,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "ichor"},
			Annotations: map[string]string{"ichor.maesh.dev/cluster": clusterName},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{v1alpha1.SecretsBundleKey: text},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: Secret %s/%s", ErrExists, ref.Namespace, ref.Name)
	}
	if err != nil {
		return fmt.Errorf("create Secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return nil
}

// LoadFor reads a cluster's bundle and holds it against the hash that the cluster's status remembers. A cluster whose
// status has no hash yet gets its bundle; recording the hash is the cluster controller's part.
func (s Store) LoadFor(ctx context.Context, cluster *v1alpha1.TalosCluster) (*Bundle, error) {
	bundle, err := s.Load(ctx, cluster.Spec.SecretsRef)
	if err != nil {
		return nil, err
	}
	if err := checkHash(cluster, bundle); err != nil {
		return nil, err
	}
	return bundle, nil
}

// checkHash holds a bundle against the hash that its cluster's status remembers, if it does: ErrChanged.
func checkHash(cluster *v1alpha1.TalosCluster, bundle *Bundle) error {
	if known := cluster.Status.SecretsBundleHash; known != "" && known != bundle.Hash() {
		return fmt.Errorf("%w: Secret %s/%s holds a bundle with hash %.12s, cluster %s was made with %.12s; put the original bundle back",
			ErrChanged, cluster.Spec.SecretsRef.Namespace, cluster.Spec.SecretsRef.Name, bundle.Hash(), cluster.Name, known)
	}
	return nil
}
