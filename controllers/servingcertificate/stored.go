// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// What is written, and where.
const (
	// AuthoritySecretName holds the authority: tls.crt and tls.key of the one that signs, retired.crt of earlier ones. Only
	// the controller reads it.
	AuthoritySecretName = "ichor-apiserver-ca"
	// SecretName holds what ichor-apiserver serves with: tls.crt, tls.key, and ca.crt with all authorities that may be met.
	SecretName = "ichor-apiserver-tls"
	// ServiceName is the Service by which the kube-apiserver reaches ichor-apiserver.
	ServiceName = "ichor-apiserver"
	// APIServiceName is the APIService that takes the authorities.
	APIServiceName = "v1alpha1." + v1alpha1.GroupName

	keyAuthority = "ca.crt"
	keyRetired   = "retired.crt"
)

const (
	// AnnotationRotateBefore is for people. On one of the two Secrets: a certificate that was made before this time
	// (RFC 3339) is replaced. An authority so replaced is dropped as soon as nobody can need it, not at the end of its
	// last certificate's life.
	AnnotationRotateBefore = v1alpha1.GroupName + "/rotate-before"
	// annotationSignedUntil is the end of the longest life that the authority has given, written before it signs.
	annotationSignedUntil = v1alpha1.GroupName + "/signed-until"
	// annotationRetiredUntil is the same of those that are retired.
	annotationRetiredUntil = v1alpha1.GroupName + "/retired-until"
	// annotationBundleSince is since when the APIService trusts all that its caBundle holds. It also says that the bundle
	// is this package's.
	annotationBundleSince = v1alpha1.GroupName + "/ca-bundle-since"

	managedLabel, managedBy = "app.kubernetes.io/managed-by", "ichor"
)

// certManagerAnnotations ask cert-manager's cainjector to fill the caBundle.
// Source: cert-manager, "CA Injector".
var certManagerAnnotations = []string{
	"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca",
}

// authorities are what the Secret ichor-apiserver-ca holds.
type authorities struct {
	// current signs; without a certificate there is none that can be used.
	current authority
	retired []*x509.Certificate
	// signedUntil and retiredUntil are the end of the last serving certificate that current and retired have signed.
	signedUntil, retiredUntil time.Time
	rotateBefore              time.Time
}

// bundle are all whose certificates may be met, the current one first.
func (a authorities) bundle() []*x509.Certificate {
	return append([]*x509.Certificate{a.current.certificate}, a.retired...)
}

// served is what the Secret ichor-apiserver-tls holds; without a certificate there is none that can be used.
type served struct {
	leaf
	authorities  []byte
	rotateBefore time.Time
}

// published is what the APIService trusts.
type published struct {
	present bool
	bundle  []*x509.Certificate
	// raw is the bundle as it is there.
	raw   []byte
	since time.Time
}

// observed is all that is decided from.
type observed struct {
	// notOurs says whose certificates these are, if not this controller's.
	notOurs     string
	authorities authorities
	served      served
	published   published
	// faults are contents that can't be used.
	faults []error
}

// read judges the objects as they are stored; nil is one that isn't there.
func read(authority, serving *corev1.Secret, service *apiregistrationv1.APIService) observed {
	var o observed
	if o.notOurs = foreign(authority, serving, service); o.notOurs != "" {
		return o
	}
	if authority != nil {
		o.readAuthorities(authority)
	}
	if serving != nil {
		o.readServed(serving)
	}
	if service != nil {
		o.published = published{present: true, raw: service.Spec.CABundle, since: timeOf(service, annotationBundleSince)}
		o.published.bundle, _ = decodeCertificates(service.Spec.CABundle) // one that can't be read is written again
	}
	return o
}

func (o *observed) readAuthorities(secret *corev1.Secret) {
	a := authorities{
		signedUntil: timeOf(secret, annotationSignedUntil), retiredUntil: timeOf(secret, annotationRetiredUntil), rotateBefore: timeOf(secret, AnnotationRotateBefore),
	}
	var err error
	if a.current, err = decodeAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		o.faults = append(o.faults, fmt.Errorf("the contents of Secret %s/%s: %w", secret.Namespace, secret.Name, err))
	}
	if a.retired, err = decodeCertificates(secret.Data[keyRetired]); err != nil {
		o.faults = append(o.faults, fmt.Errorf("the contents of Secret %s/%s, %s: %w", secret.Namespace, secret.Name, keyRetired, err))
	}
	o.authorities = a
}

func (o *observed) readServed(secret *corev1.Secret) {
	var err error
	o.served = served{authorities: secret.Data[keyAuthority], rotateBefore: timeOf(secret, AnnotationRotateBefore)}
	if o.served.leaf, err = decodeLeaf(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		o.faults = append(o.faults, fmt.Errorf("the contents of Secret %s/%s: %w", secret.Namespace, secret.Name, err))
	}
}

// foreign says why the certificates are somebody else's business; empty if they are this controller's.
func foreign(authority, serving *corev1.Secret, service *apiregistrationv1.APIService) string {
	for _, secret := range []*corev1.Secret{authority, serving} {
		if secret != nil && secret.Labels[managedLabel] != managedBy {
			return fmt.Sprintf("Secret %s/%s isn't Ichor's: it lacks the label %s=%s; delete it to have a certificate issued", secret.Namespace, secret.Name, managedLabel, managedBy)
		}
	}
	if service == nil {
		return ""
	}
	for _, annotation := range certManagerAnnotations {
		if _, injected := service.Annotations[annotation]; injected {
			return fmt.Sprintf("APIService %s has the annotation %s: cert-manager fills its caBundle", service.Name, annotation)
		}
	}
	_, ours := service.Annotations[annotationBundleSince]
	switch {
	case service.Spec.Service == nil:
		return fmt.Sprintf("APIService %s names no Service", service.Name)
	case service.Spec.InsecureSkipTLSVerify:
		return fmt.Sprintf("APIService %s has insecureSkipTLSVerify: remove it to have the server verified", service.Name)
	case len(service.Spec.CABundle) > 0 && !ours:
		return fmt.Sprintf("the caBundle of APIService %s was set by somebody else: remove it to have Ichor look after it", service.Name)
	}
	return ""
}

// timeOf reads a time from an annotation; zero if there is none or it can't be read.
func timeOf(object metav1.Object, annotation string) time.Time {
	t, err := time.Parse(time.RFC3339, object.GetAnnotations()[annotation])
	if err != nil {
		return time.Time{}
	}
	return t
}

// annotate sets or, for a time that is zero, removes an annotation.
func annotate(object metav1.Object, annotation string, t time.Time) {
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	if delete(annotations, annotation); !t.IsZero() {
		annotations[annotation] = t.UTC().Format(time.RFC3339)
	}
	object.SetAnnotations(annotations)
}

// store fills the Secret ichor-apiserver-ca.
func (a authorities) store(secret *corev1.Secret) error {
	key, err := encodeKey(a.current.key)
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: encodeCertificates(a.current.certificate), corev1.TLSPrivateKeyKey: key}
	if len(a.retired) > 0 {
		secret.Data[keyRetired] = encodeCertificates(a.retired...)
	}
	annotate(secret, annotationSignedUntil, a.signedUntil)
	annotate(secret, annotationRetiredUntil, a.retiredUntil)
	return nil
}

// same tells whether two bundles hold the same certificates, in whatever order.
func same(a, b []*x509.Certificate) bool { return within(a, b) && within(b, a) }

// within tells whether all of a are in b.
func within(a, b []*x509.Certificate) bool {
	return !slices.ContainsFunc(a, func(certificate *x509.Certificate) bool { return !slices.ContainsFunc(b, certificate.Equal) })
}
