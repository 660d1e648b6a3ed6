// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"crypto/x509"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// expires is when the certificates end: an alert that needs no look at a Secret.
var expires = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "ichor",
	Subsystem:      "serving_certificate",
	Name:           "expiration_timestamp_seconds",
	Help:           "When a certificate of ichor-apiserver expires, in seconds since 1970, by certificate: serving, or authority for the one that signs. Of the leader only; absent where somebody else looks after them.",
	StabilityLevel: metrics.ALPHA,
}, []string{"certificate"})

// rotations counts what was made.
var rotations = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace:      "ichor",
	Subsystem:      "serving_certificate",
	Name:           "issued_total",
	Help:           "Certificates of ichor-apiserver that were made, by certificate: serving or authority.",
	StabilityLevel: metrics.ALPHA,
}, []string{"certificate"})

// trusted is how many authorities the APIService trusts: more than one for the time of a rotation.
var trusted = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace:      "ichor",
	Subsystem:      "serving_certificate",
	Name:           "trusted_authorities",
	Help:           "Certificate authorities in the caBundle of Ichor's APIService: more than one during a rotation.",
	StabilityLevel: metrics.ALPHA,
})

// registerMetrics makes the metrics known once, however many controllers a process holds.
var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(expires, rotations, trusted) })

// measure shows what was observed.
func measure(o observed) {
	for name, certificate := range map[string]*x509.Certificate{"serving": o.served.certificate, "authority": o.authorities.current.certificate} {
		if certificate == nil {
			expires.DeleteLabelValues(name)
			continue
		}
		expires.WithLabelValues(name).Set(float64(certificate.NotAfter.Unix()))
	}
	trusted.Set(float64(len(o.published.bundle)))
}

func countRotation(certificate string) { rotations.WithLabelValues(certificate).Inc() }
