// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// objects are as they are stored; nil is one that isn't there.
type objects struct {
	authority, serving *corev1.Secret
	service            *apiregistrationv1.APIService
}

func (c *Controller) get(ctx context.Context) (o objects, err error) {
	secrets := c.Kubernetes.CoreV1().Secrets(v1alpha1.SystemNamespace)
	if o.authority, err = found(secrets.Get(ctx, AuthoritySecretName, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("read Secret %s/%s: %w", v1alpha1.SystemNamespace, AuthoritySecretName, err)
	}
	if o.serving, err = found(secrets.Get(ctx, SecretName, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("read Secret %s/%s: %w", v1alpha1.SystemNamespace, SecretName, err)
	}
	if o.service, err = found(c.Aggregator.ApiregistrationV1().APIServices().Get(ctx, APIServiceName, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("read APIService %s: %w", APIServiceName, err)
	}
	return o, nil
}

// found makes nil of an object that isn't there.
func found[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// take takes one step. Each writes one object, and only the version of it that was judged.
func (c *Controller) take(ctx context.Context, next step, have objects, o observed, now time.Time) error {
	a := o.authorities
	switch next.action {
	case makeAuthority:
		made, err := newAuthority(now, c.Settings.AuthorityLifetime)
		if err != nil {
			return err
		}
		renewed := succeed(o, made, now)
		renewed.signedUntil = leafEnd(renewed, c.Settings, now).Add(reserveSlack)
		if err := c.writeAuthorities(ctx, have.authority, renewed); err != nil {
			return err
		}
		c.event(AuthoritySecretName, "AuthorityMade", "Made the certificate authority %s, good until %s", made.certificate.Subject.CommonName, made.certificate.NotAfter.UTC().Format(time.RFC3339))
		countRotation("authority")
		return nil
	case reserve:
		a.signedUntil = leafEnd(a, c.Settings, now).Add(reserveSlack)
		return c.writeAuthorities(ctx, have.authority, a)
	case drop:
		a.retired = next.keep
		if len(a.retired) == 0 {
			a.retiredUntil = time.Time{}
		}
		if err := c.writeAuthorities(ctx, have.authority, a); err != nil {
			return err
		}
		c.event(AuthoritySecretName, "AuthorityDropped", "No server can serve a certificate of an earlier authority any more")
		return nil
	case publish:
		return c.publish(ctx, have.service, o, now)
	case issue:
		issued, err := a.current.issue(c.Settings.Names, now, leafEnd(a, c.Settings, now))
		if err != nil {
			return err
		}
		if err := c.writeServing(ctx, have.serving, issued, a); err != nil {
			return err
		}
		c.event(SecretName, "CertificateIssued", "Issued a serving certificate of %s, good until %s", a.current.certificate.Subject.CommonName, issued.certificate.NotAfter.UTC().Format(time.RFC3339))
		countRotation("serving")
		return nil
	case deliver:
		return c.writeServing(ctx, have.serving, o.served.leaf, a)
	default:
		return fmt.Errorf("unknown step %q", next.action)
	}
}

// succeed puts a new authority in the place of the current one. What the APIService trusts stays trusted, also if the
// Secret with the authority was lost: servers still serve its certificates.
func succeed(o observed, current authority, now time.Time) authorities {
	a := o.authorities
	candidates := append([]*x509.Certificate{a.current.certificate}, a.retired...)
	candidates = append(candidates, o.published.bundle...)
	out := authorities{current: current, rotateBefore: a.rotateBefore, retiredUntil: later(a.retiredUntil, a.signedUntil)}
	for _, certificate := range candidates {
		if valid(certificate, now) && !slices.ContainsFunc(out.retired, certificate.Equal) {
			out.retired = append(out.retired, certificate)
		}
	}
	if out.retiredUntil.IsZero() && o.served.certificate != nil {
		// Serving certificates that were issued earlier end earlier.
		out.retiredUntil = o.served.certificate.NotAfter
	}
	if len(out.retired) == 0 {
		out.retiredUntil = time.Time{}
	}
	return out
}

func (c *Controller) writeAuthorities(ctx context.Context, have *corev1.Secret, a authorities) error {
	secret := c.secret(have, AuthoritySecretName, corev1.SecretTypeOpaque)
	if err := a.store(secret); err != nil {
		return err
	}
	return c.write(ctx, have, secret)
}

func (c *Controller) writeServing(ctx context.Context, have *corev1.Secret, l leaf, a authorities) error {
	secret := c.secret(have, SecretName, corev1.SecretTypeTLS)
	secret.Data = map[string][]byte{corev1.TLSCertKey: l.chain, corev1.TLSPrivateKeyKey: l.key, keyAuthority: encodeCertificates(a.bundle()...)}
	return c.write(ctx, have, secret)
}

// secret is the Secret to write: the one that was judged, or a new one.
func (c *Controller) secret(have *corev1.Secret, name string, kind corev1.SecretType) *corev1.Secret {
	if have != nil {
		return have.DeepCopy()
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: name, Labels: map[string]string{managedLabel: managedBy, "app.kubernetes.io/part-of": "ichor"},
		},
		Type: kind,
	}
}

func (c *Controller) write(ctx context.Context, have, secret *corev1.Secret) error {
	secrets := c.Kubernetes.CoreV1().Secrets(secret.Namespace)
	var err error
	if have == nil {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// publish writes the bundle into the APIService. The time from which it counts moves only if something was added.
func (c *Controller) publish(ctx context.Context, have *apiregistrationv1.APIService, o observed, now time.Time) error {
	service, bundle := have.DeepCopy(), o.authorities.bundle()
	since := o.published.since
	if since.IsZero() || since.After(now.Add(skew)) || !within(bundle, o.published.bundle) {
		since = now.Add(time.Second) // seconds are stored, and none is given away
	}
	service.Spec.CABundle = encodeCertificates(bundle...)
	annotate(service, annotationBundleSince, since)
	if _, err := c.Aggregator.ApiregistrationV1().APIServices().Update(ctx, service, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the caBundle of APIService %s: %w", APIServiceName, err)
	}
	return nil
}

// event tells people of a Secret; never what it holds.
func (c *Controller) event(secret, reason, message string, arguments ...any) {
	c.Recorder.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: v1alpha1.SystemNamespace, Name: secret}, corev1.EventTypeNormal, reason, message, arguments...)
}
