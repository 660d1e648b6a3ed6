// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"bytes"
	"crypto/x509"
	"net/netip"
	"slices"
	"time"
)

// action is the one write that comes next. Each is decided anew from what is stored, so a crash between two of them, or
// an answer that was lost, changes nothing.
type action string

const (
	rest action = "nothing to do"
	// makeAuthority makes a new one; the one before it retires.
	makeAuthority action = "make a certificate authority"
	// publish writes all authorities into the APIService.
	publish action = "publish the certificate authorities"
	// reserve notes for how long the authority is about to sign.
	reserve action = "note until when the authority signs"
	// issue makes a serving certificate.
	issue action = "issue a serving certificate"
	// deliver writes all authorities beside the serving certificate.
	deliver action = "deliver the certificate authorities"
	// drop forgets authorities whose certificates nobody can serve any more.
	drop action = "drop retired certificate authorities"
)

// recheck is how often all is looked at without any reason: clocks jump.
const recheck = 10 * time.Minute

// reserveSlack is how much longer than needed is reserved, so that a repeated issue needs no second note.
const reserveSlack = time.Hour

// step is what to do, and when to look again if that is nothing.
type step struct {
	action action
	after  time.Duration
	// keep are the retired authorities that stay, for drop.
	keep []*x509.Certificate
}

// plan says what comes next. The order is what makes a rotation harmless: a new authority is trusted by the APIService
// for as long as every kube-apiserver may take to notice before a certificate of it is served; an old one is trusted
// until no server can serve a certificate of it.
func plan(o observed, s Settings, now time.Time) step {
	if o.notOurs != "" {
		return step{action: rest, after: recheck}
	}
	a, bundle := o.authorities, o.authorities.bundle()
	usable := valid(o.served.certificate, now)
	mine := a.current.signed(o.served.certificate)
	next := upcoming{now: now, at: now.Add(recheck)}

	switch renew := renewal(a.current.certificate, s.AuthorityLifetime, a.rotateBefore, now); {
	case !valid(a.current.certificate, now):
		return step{action: makeAuthority}
	case !now.Before(renew) && (mine || !usable): // one at a time: the next waits until this one is in use
		return step{action: makeAuthority}
	default:
		next.add(renew)
	}

	if p := o.published; p.present && (!same(p.bundle, bundle) || !bytes.Equal(p.raw, encodeCertificates(bundle...)) || p.since.IsZero() || p.since.After(now.Add(skew))) {
		return step{action: publish}
	}

	wanted := renewal(o.served.certificate, s.LeafLifetime, o.served.rotateBefore, now)
	if !usable || !mine || !named(o.served.certificate, s.Names) {
		wanted = now
	}
	trusted := now
	if usable && o.published.present {
		trusted = o.published.since.Add(s.Propagation)
	}
	if due := later(wanted, trusted); due.After(now) {
		next.add(due)
	} else if end := leafEnd(a, s, now); a.signedUntil.Before(end) {
		return step{action: reserve}
	} else {
		return step{action: issue}
	}

	if !bytes.Equal(o.served.authorities, encodeCertificates(bundle...)) {
		return step{action: deliver}
	}
	if mine {
		keep := slices.DeleteFunc(slices.Clone(a.retired), func(certificate *x509.Certificate) bool {
			end := retirement(certificate, a, made(o.served.certificate).Add(s.Propagation))
			next.add(end)
			return !end.After(now)
		})
		if len(keep) < len(a.retired) {
			return step{action: drop, keep: keep}
		}
	}
	return step{action: rest, after: next.at.Sub(now)}
}

// renewal is when a certificate is replaced: at two thirds of its life, or of what is its life now; and when a person
// asked for it.
func renewal(certificate *x509.Certificate, life time.Duration, rotateBefore, now time.Time) time.Time {
	if certificate == nil {
		return now
	}
	from := made(certificate)
	due := from.Add(min(certificate.NotAfter.Sub(from), life) * 2 / 3)
	// What is made in the second in which the order falls is new enough.
	if from.Before(rotateBefore.Truncate(time.Second)) && rotateBefore.Before(due) {
		due = rotateBefore
	}
	return due
}

// retirement is when a retired authority is dropped: when all that it signed has expired. One that a person replaced is
// dropped once every server has had time to take the new certificate.
func retirement(certificate *x509.Certificate, a authorities, taken time.Time) time.Time {
	end := certificate.NotAfter
	if until := a.retiredUntil.Add(skew); !a.retiredUntil.IsZero() && until.Before(end) {
		end = until
	}
	if made(certificate).Before(a.rotateBefore) && taken.Before(end) {
		end = taken
	}
	return end
}

// leafEnd is when a serving certificate expires that is issued now.
func leafEnd(a authorities, s Settings, now time.Time) time.Time {
	end := now.Add(s.LeafLifetime).Truncate(time.Second)
	if a.current.certificate.NotAfter.Before(end) {
		return a.current.certificate.NotAfter
	}
	return end
}

// named tells whether a certificate is for exactly these names.
func named(certificate *x509.Certificate, names []string) bool {
	if certificate == nil {
		return false
	}
	have := slices.Clone(certificate.DNSNames)
	for _, address := range certificate.IPAddresses {
		have = append(have, address.String())
	}
	want := make([]string, 0, len(names))
	for _, name := range names {
		if address, err := netip.ParseAddr(name); err == nil {
			name = address.Unmap().String()
		}
		want = append(want, name)
	}
	slices.Sort(have)
	slices.Sort(want)
	return slices.Equal(have, slices.Compact(want))
}

// upcoming is the next moment at which something changes by itself.
type upcoming struct{ now, at time.Time }

func (u *upcoming) add(t time.Time) {
	if t.After(u.now) && t.Before(u.at) {
		u.at = t
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
