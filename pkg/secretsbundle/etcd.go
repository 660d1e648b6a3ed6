// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// The Secret in ichor-system with the certificate that Ichor's API server reaches the cluster's etcd with.
const (
	EtcdSecretName     = "ichor-apiserver-etcd"
	EtcdSecretCA       = "ca.crt"
	EtcdSecretCert     = "tls.crt"
	EtcdSecretKey      = "tls.key"
	etcdCommonName     = "ichor-apiserver"
	EtcdCertificateTTL = 365 * 24 * time.Hour
)

// EnsureEtcdClient makes sure that the Secret ichor-apiserver-etcd holds a certificate of the bundle's etcd authority
// with more than half of its life before it, and returns what it holds.
func (s Store) EnsureEtcdClient(ctx context.Context, bundle *Bundle, now time.Time) (ClientPair, error) {
	secrets := s.Secrets.Secrets(v1alpha1.SystemNamespace)
	have, err := secrets.Get(ctx, EtcdSecretName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return ClientPair{}, fmt.Errorf("read Secret %s/%s: %w", v1alpha1.SystemNamespace, EtcdSecretName, err)
	}
	missing := err != nil
	if !missing {
		if pair := (ClientPair{CA: have.Data[EtcdSecretCA], Certificate: have.Data[EtcdSecretCert], Key: have.Data[EtcdSecretKey]}); bundle.vouchesFor(pair, now) {
			return pair, nil
		}
	}
	pair, err := bundle.EtcdClient(now, etcdCommonName, EtcdCertificateTTL)
	if err != nil {
		return ClientPair{}, err
	}
	data := map[string][]byte{EtcdSecretCA: pair.CA, EtcdSecretCert: pair.Certificate, EtcdSecretKey: pair.Key}
	if missing {
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: v1alpha1.SystemNamespace,
				Name:      EtcdSecretName,
				Labels:    map[string]string{"app.kubernetes.io/managed-by": "ichor"},
			},
			Type: corev1.SecretTypeOpaque,
			Data: data,
		}, metav1.CreateOptions{})
	} else {
		renewed := have.DeepCopy()
		renewed.Data = data
		_, err = secrets.Update(ctx, renewed, metav1.UpdateOptions{})
	}
	if err != nil {
		return ClientPair{}, fmt.Errorf("write Secret %s/%s: %w", v1alpha1.SystemNamespace, EtcdSecretName, err)
	}
	return pair, nil
}

// vouchesFor tells whether a stored pair is of this bundle and has half of its life before it.
func (b *Bundle) vouchesFor(pair ClientPair, now time.Time) bool {
	if !bytes.Equal(pair.CA, b.talos.Certs.Etcd.Crt) || len(pair.Key) == 0 {
		return false
	}
	block, _ := pem.Decode(pair.Certificate)
	if block == nil {
		return false
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair.CA)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil && now.Before(leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore)/2))
}

// RenewEtcdClient renews the certificate in the Secret ichor-apiserver-etcd at half of its life. Without the Secret there
// is nothing to renew: Ichor's API server has a storage of its own then.
func (s Store) RenewEtcdClient(ctx context.Context, bundle *Bundle, now time.Time) error {
	_, err := s.Secrets.Secrets(v1alpha1.SystemNamespace).Get(ctx, EtcdSecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Secret %s/%s: %w", v1alpha1.SystemNamespace, EtcdSecretName, err)
	}
	_, err = s.EnsureEtcdClient(ctx, bundle, now)
	return err
}
