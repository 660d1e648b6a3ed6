// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"net/netip"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/schedule"
)

// now is replaced by tests.
var now = time.Now

const (
	// rare is longer than what most people mean who write a schedule.
	rare = 35 * 24 * time.Hour
	// scanRate is how many addresses a second the search asks at most, as --scan-rate has it if nobody says otherwise.
	scanRate = 500
	// expiringSoon is when the end of a certificate is worth a word.
	expiringSoon = 30 * 24 * time.Hour
	// longCredential is longer than a working day.
	longCredential = 12 * time.Hour
)

// MachineWarnings tells of what is allowed and will be regretted later.
func MachineWarnings(machine *ichor.TalosMachine) []string {
	if machine.Spec.DeletionPolicy == ichor.DeletionOrphan {
		return []string{"spec.deletionPolicy: Orphan leaves the machine with the cluster's keys when the object is deleted"}
	}
	return nil
}

// StorageWarnings tells of certificates that end soon.
func StorageWarnings(storage *ichor.TalosStorage) []string {
	rest := []byte(storage.Spec.CABundle)
	for {
		block, left := pem.Decode(rest)
		if block == nil {
			return nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && certificate.NotAfter.Before(now().Add(expiringSoon)) {
			return []string{"spec.caBundle: a certificate in it ends on " + certificate.NotAfter.UTC().Format(time.DateOnly)}
		}
		rest = left
	}
}

// CredentialRequestWarnings tells of certificates that nobody can take back.
func CredentialRequestWarnings(request *ichor.TalosCredentialRequest) []string {
	switch {
	case request.Spec.Role == ichor.TalosRoleAdmin:
		return []string{"spec.role: os:admin may read every secret of the machines, and can't be taken back before it ends"}
	case request.Spec.TTL != nil && request.Spec.TTL.Duration > longCredential:
		return []string{fmt.Sprintf("spec.ttl: the certificate can't be taken back for %s; ask for less, and again", request.Spec.TTL.Duration)}
	}
	return nil
}

// scanWarnings tells of an interval that is over before a scan can be.
func scanWarnings(discovery *ichor.Discovery) []string {
	addresses := float64(len(discovery.Addresses))
	for _, subnet := range discovery.Subnets {
		if prefix, err := netip.ParsePrefix(subnet.CIDR); err == nil {
			addresses += math.Exp2(float64(prefix.Addr().BitLen() - prefix.Bits()))
		}
	}
	least := time.Duration(addresses/scanRate) * time.Second
	if interval := discovery.Interval.Duration; interval > 0 && least > interval {
		return []string{fmt.Sprintf("spec.discovery.interval: %s is less than a scan of %.0f addresses takes (%s)", interval, addresses, least)}
	}
	return nil
}

// rareWarnings tells of a schedule whose next time is far away, as that of 29 February.
func rareWarnings(path, what, fields, timeZone string) []string {
	times, err := schedule.Parse(fields, timeZone)
	if err != nil {
		return nil // refused
	}
	if next := times.Next(now()); next.IsZero() || next.Sub(now()) > rare {
		return []string{fmt.Sprintf("%s: %s next on %s only", path, what, next.Format(time.DateOnly))}
	}
	return nil
}

// retentionWarnings tells of backups that are gone before the next one is there, and of one alone.
func retentionWarnings(spec *ichor.TalosEtcdBackupSpec) []string {
	var warnings []string
	if spec.Retention.Count == 1 {
		warnings = append(warnings, "spec.retention.count: with 1, what went wrong before the last backup can't be undone")
	}
	times, err := schedule.Parse(spec.Schedule, spec.TimeZone)
	if err != nil || spec.Retention.MaxAge == nil {
		return warnings
	}
	first := times.Next(now())
	if between := times.Next(first).Sub(first); spec.Retention.MaxAge.Duration < between {
		warnings = append(warnings, fmt.Sprintf("spec.retention.maxAge: %s is less than the time between backups (%s): only the last is kept",
			spec.Retention.MaxAge.Duration, between))
	}
	return warnings
}

// windowWarnings tells of windows that a machine may outlast, or that hardly ever open.
func windowWarnings(spec *ichor.TalosOperationSpec) []string {
	var warnings []string
	for i, window := range spec.Windows {
		path := fmt.Sprintf("spec.windows[%d]", i)
		if drain := spec.Drain.Timeout; drain != nil && window.Duration.Duration < drain.Duration {
			warnings = append(warnings, fmt.Sprintf("%s.duration: %s is less than spec.drain.timeout (%s): machines are finished after it ends",
				path, window.Duration.Duration, drain.Duration))
		}
		warnings = append(warnings, rareWarnings(path+".schedule", "it opens", window.Schedule, window.TimeZone)...)
	}
	return warnings
}
