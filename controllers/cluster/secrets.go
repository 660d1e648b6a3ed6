// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
)

// checkSecrets looks whether the bundle is there and still the one that the cluster was made with, and makes it where
// that is asked for and can do no harm. The error is the API's own.
func (c *Controller) checkSecrets(ctx context.Context, cluster *v1alpha1.TalosCluster) error {
	bundle, err := c.Store.LoadFor(ctx, cluster)
	reason, message := reasonSecretsLoaded, ""
	if errors.Is(err, secretsbundle.ErrMissing) && cluster.Spec.SecretsPolicy == v1alpha1.SecretsPolicyGenerate {
		bundle, err = c.generate(ctx, cluster, err)
		reason = reasonSecretsGenerated
	}
	switch {
	case err == nil:
		message = fmt.Sprintf("Secret %s/%s holds the bundle %.12s", cluster.Spec.SecretsRef.Namespace, cluster.Spec.SecretsRef.Name, bundle.Hash())
		cluster.Status.SecretsBundleHash = bundle.Hash()
		if alreadyReady(cluster, message) {
			return c.renewEtcdClient(ctx, cluster.Name, bundle)
		}
		set(cluster, v1alpha1.ConditionSecretsReady, metav1.ConditionTrue, reason, message)
		return c.renewEtcdClient(ctx, cluster.Name, bundle)
	case errors.Is(err, secretsbundle.ErrMissing):
		reason = v1alpha1.ReasonSecretsMissing
	case errors.Is(err, secretsbundle.ErrInvalid):
		reason = v1alpha1.ReasonSecretsInvalid
	case errors.Is(err, secretsbundle.ErrChanged):
		reason = reasonSecretsChanged
	default:
		return err
	}
	set(cluster, v1alpha1.ConditionSecretsReady, metav1.ConditionFalse, reason, err.Error()+"; nothing is applied to any machine until this is mended")
	return nil
}

// alreadyReady keeps the reason of the first time, for instance that the bundle was generated.
func alreadyReady(cluster *v1alpha1.TalosCluster, message string) bool {
	for _, condition := range cluster.Status.Conditions {
		if condition.Type == v1alpha1.ConditionSecretsReady {
			return condition.Status == metav1.ConditionTrue && condition.Message == message && condition.ObservedGeneration == cluster.Generation
		}
	}
	return false
}

// generate makes a bundle for a cluster that never had one and has no approved machine.
func (c *Controller) generate(ctx context.Context, cluster *v1alpha1.TalosCluster, missing error) (*secretsbundle.Bundle, error) {
	if cluster.Status.SecretsBundleHash != "" {
		return nil, fmt.Errorf("%w; the cluster had one (%.12s), so none is made in its place: put it back from a backup", missing, cluster.Status.SecretsBundleHash)
	}
	approved, err := c.approvedMachines(ctx, cluster.Name)
	if err != nil {
		return nil, err
	}
	if len(approved) > 0 {
		return nil, fmt.Errorf("%w; none is made, because machines are approved already (%s): put the bundle they were made with there", missing, strings.Join(approved, ", "))
	}
	contract, err := machineconfig.Contract(cluster.Spec.TalosVersion)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", secretsbundle.ErrInvalid, err)
	}
	bundle, err := secretsbundle.Generate(contract, c.Clock.Now())
	if err != nil {
		return nil, err
	}
	if err := c.Store.Create(ctx, cluster.Spec.SecretsRef, cluster.Name, bundle); err != nil && !errors.Is(err, secretsbundle.ErrExists) {
		return nil, err
	}
	// Read back: what counts is what is stored, whoever made it.
	return c.Store.LoadFor(ctx, cluster)
}

// renewalCheck is how often the API server's etcd certificate is looked at; it is renewed at half of a year.
const renewalCheck = time.Hour

// renewals remembers when each cluster's etcd certificate was looked at.
type renewals struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

func (r *renewals) due(name string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.seen[name]; ok && now.Sub(last) < renewalCheck {
		return false
	}
	if r.seen == nil {
		r.seen = map[string]time.Time{}
	}
	r.seen[name] = now
	return true
}

// renewEtcdClient renews the certificate that Ichor's API server reaches etcd with, if it uses one.
func (c *Controller) renewEtcdClient(ctx context.Context, name string, bundle *secretsbundle.Bundle) error {
	if !c.renewals.due(name, c.Clock.Now()) {
		return nil
	}
	return c.Store.RenewEtcdClient(ctx, bundle, c.Clock.Now())
}
