// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Settings are what can be chosen.
type Settings struct {
	// Names are DNS names and IP addresses that the certificate is for, besides those of the Service.
	Names []string
	// LeafLifetime and AuthorityLifetime are how long certificates are good; they are replaced at two thirds of it.
	LeafLifetime, AuthorityLifetime time.Duration
	// Propagation is how long a change of the APIService may take to reach every kube-apiserver, and a change of a Secret
	// to reach the files of every ichor-apiserver. A kubelet takes up to its sync period (1 min), times 1.5, and what its
	// cache adds. Source: Kubernetes, "Secrets", "Mounted Secrets are updated automatically".
	Propagation time.Duration
}

// DefaultSettings are the settings without any flag.
func DefaultSettings() Settings {
	return Settings{LeafLifetime: 30 * 24 * time.Hour, AuthorityLifetime: 365 * 24 * time.Hour, Propagation: 5 * time.Minute}
}

// shortest is the shortest life that a certificate may have: clocks differ.
const shortest = time.Minute

// Validate names every setting that can't be.
func (s Settings) Validate() error {
	var errs []error
	if s.LeafLifetime < shortest {
		errs = append(errs, fmt.Errorf("lifetime of serving certificates: %s is shorter than %s", s.LeafLifetime, shortest))
	}
	if s.AuthorityLifetime < 3*s.LeafLifetime {
		errs = append(errs, fmt.Errorf("lifetime of the certificate authority: %s is not at least three times that of serving certificates (%s)", s.AuthorityLifetime, s.LeafLifetime))
	}
	// The last third of a life has to hold a rotation of the authority too.
	if s.Propagation <= 0 || s.Propagation > s.LeafLifetime/6 {
		errs = append(errs, fmt.Errorf("propagation of certificates: %s is not within 0 and a sixth of the lifetime of serving certificates (%s)", s.Propagation, s.LeafLifetime/6))
	}
	for _, name := range s.Names {
		if _, err := netip.ParseAddr(name); err == nil {
			continue
		}
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			errs = append(errs, fmt.Errorf("name of the serving certificate: %q is neither a DNS name nor an IP address", name))
		}
	}
	return errors.Join(errs...)
}

// complete adds the names of the Service. The kube-apiserver verifies <service>.<namespace>.svc.
// Source: k8s.io/kube-aggregator, pkg/controllers/status/remote, BuildTransportConfig.
func (s Settings) complete() Settings {
	const inNamespace = ServiceName + "." + v1alpha1.SystemNamespace
	names := []string{inNamespace + ".svc", ServiceName, inNamespace, inNamespace + ".svc.cluster.local"}
	for _, name := range s.Names {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	s.Names = names
	return s
}
