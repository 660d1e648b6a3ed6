// SPDX-License-Identifier: Apache-2.0

package servingcertificate

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scene is a state, told in times relative to now: the certificate authorities A (older) and B, and a serving certificate.
type scene struct {
	t   *testing.T
	now time.Time
	s   Settings
	// a and b are authorities, made that long ago.
	a, b authority
	o    observed
}

func newScene(t *testing.T, aAge, bAge time.Duration) *scene {
	t.Helper()
	s := &scene{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), s: DefaultSettings().complete()}
	var err error
	if s.a, err = newAuthority(s.now.Add(-aAge), s.s.AuthorityLifetime); err != nil {
		t.Fatal(err)
	}
	if s.b, err = newAuthority(s.now.Add(-bAge), s.s.AuthorityLifetime); err != nil {
		t.Fatal(err)
	}
	return s
}

// serve puts a serving certificate of an authority there.
func (s *scene) serve(by authority, age time.Duration) *scene {
	s.t.Helper()
	made := s.now.Add(-age)
	l, err := by.issue(s.s.Names, made, made.Add(s.s.LeafLifetime))
	if err != nil {
		s.t.Fatal(err)
	}
	s.o.served = served{leaf: l, authorities: encodeCertificates(s.o.authorities.bundle()...)}
	return s
}

// hold makes an authority the current one; the others are retired.
func (s *scene) hold(current authority, retired ...authority) *scene {
	s.o.authorities = authorities{current: current, signedUntil: s.now.Add(2 * s.s.LeafLifetime)}
	for _, r := range retired {
		s.o.authorities.retired = append(s.o.authorities.retired, r.certificate)
	}
	return s
}

// trust makes the APIService trust authorities since that long ago.
func (s *scene) trust(age time.Duration, trusted ...authority) *scene {
	var bundle []*x509.Certificate
	for _, each := range trusted {
		bundle = append(bundle, each.certificate)
	}
	s.o.published = published{present: true, bundle: bundle, raw: encodeCertificates(bundle...), since: s.now.Add(-age)}
	return s
}

func (s *scene) with(change func(*scene)) *scene {
	change(s)
	return s
}

const day = 24 * time.Hour

func TestWhatComesNext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		scene func(*scene) *scene
		// aAge and bAge are the ages of the authorities.
		aAge, bAge time.Duration
		want       action
		after      time.Duration
	}{
		{name: "nothing is there", scene: func(s *scene) *scene { return s }, want: makeAuthority},
		{name: "an authority, no API yet", scene: func(s *scene) *scene { return s.hold(s.a) }, want: issue},
		{name: "an authority that has noted no end of what it signs", scene: func(s *scene) *scene {
			return s.hold(s.a).with(func(s *scene) { s.o.authorities.signedUntil = time.Time{} })
		}, want: reserve},
		{name: "an API that trusts nobody", scene: func(s *scene) *scene { return s.hold(s.a).trust(0) }, want: publish},
		{name: "the first certificate waits for nobody", scene: func(s *scene) *scene { return s.hold(s.a).trust(0, s.a) }, want: issue},
		{name: "all is well", scene: func(s *scene) *scene { return s.hold(s.a).trust(day, s.a).serve(s.a, day) }, want: rest, after: recheck},
		{name: "all is well, without an API", scene: func(s *scene) *scene { return s.hold(s.a).serve(s.a, day) }, want: rest, after: recheck},
		{name: "a certificate past two thirds of its life", scene: func(s *scene) *scene { return s.hold(s.a).trust(day, s.a).serve(s.a, 20*day+time.Minute) }, want: issue},
		{name: "a certificate that is soon", scene: func(s *scene) *scene { return s.hold(s.a).trust(day, s.a).serve(s.a, 20*day-time.Minute) }, want: rest, after: time.Minute},
		{name: "a shorter life is wanted", scene: func(s *scene) *scene {
			return s.hold(s.a).trust(day, s.a).serve(s.a, 3*day).with(func(s *scene) { s.s.LeafLifetime = 3 * day })
		}, want: issue},
		{name: "another name is wanted", scene: func(s *scene) *scene {
			return s.hold(s.a).trust(day, s.a).serve(s.a, day).with(func(s *scene) { s.s.Names = append([]string{"localhost"}, s.s.Names...) })
		}, want: issue},
		{name: "a certificate that a person wants replaced", scene: func(s *scene) *scene {
			return s.hold(s.a).trust(day, s.a).serve(s.a, day).with(func(s *scene) { s.o.served.rotateBefore = s.now })
		}, want: issue},
		{name: "an order for later", scene: func(s *scene) *scene {
			return s.hold(s.a).trust(day, s.a).serve(s.a, day).with(func(s *scene) { s.o.served.rotateBefore = s.now.Add(time.Minute) })
		}, want: rest, after: time.Minute},
		{name: "an order that was carried out", scene: func(s *scene) *scene {
			return s.hold(s.a).trust(day, s.a).serve(s.a, time.Minute).with(func(s *scene) { s.o.served.rotateBefore = s.now.Add(-2 * time.Minute) })
		}, want: rest, after: recheck},
		{name: "a certificate that expired", scene: func(s *scene) *scene { return s.hold(s.a).trust(0, s.a).serve(s.a, 31*day) }, want: issue},
		{name: "an authority past two thirds of its life", aAge: 244 * day, scene: func(s *scene) *scene { return s.hold(s.a).trust(day, s.a).serve(s.a, day) }, want: makeAuthority},
		{name: "an authority that a person wants replaced", aAge: day, scene: func(s *scene) *scene {
			return s.hold(s.a).trust(day, s.a).serve(s.a, day).with(func(s *scene) { s.o.authorities.rotateBefore = s.now })
		}, want: makeAuthority},
		{name: "a second order before the first is carried out", aAge: day, bAge: time.Hour, scene: func(s *scene) *scene {
			return s.hold(s.b, s.a).trust(time.Minute, s.b, s.a).serve(s.a, day).with(func(s *scene) { s.o.authorities.rotateBefore = s.now })
		}, want: rest, after: 4 * time.Minute},
		{name: "a new authority isn't trusted yet", scene: func(s *scene) *scene { return s.hold(s.b, s.a).trust(day, s.a).serve(s.a, day) }, want: publish},
		{name: "a new authority isn't trusted long enough", scene: func(s *scene) *scene { return s.hold(s.b, s.a).trust(time.Minute, s.b, s.a).serve(s.a, day) }, want: rest, after: 4 * time.Minute},
		{name: "the servers' clients don't know the new authority", scene: func(s *scene) *scene {
			return s.hold(s.b, s.a).trust(time.Minute, s.b, s.a).serve(s.a, day).with(func(s *scene) { s.o.served.authorities = nil })
		}, want: deliver},
		{name: "a new authority is trusted long enough", scene: func(s *scene) *scene { return s.hold(s.b, s.a).trust(5*time.Minute, s.b, s.a).serve(s.a, day) }, want: issue},
		{name: "a new authority signed nothing yet, and what is served expired", scene: func(s *scene) *scene { return s.hold(s.b, s.a).trust(0, s.b, s.a).serve(s.a, 31*day) }, want: issue},
		{name: "certificates of the old authority may be served", aAge: day, scene: func(s *scene) *scene {
			return s.hold(s.b, s.a).trust(day, s.b, s.a).serve(s.b, time.Hour).with(func(s *scene) { s.o.authorities.retiredUntil = s.now.Add(-time.Minute) })
		}, want: rest, after: 4 * time.Minute},
		{name: "all certificates of the old authority expired", aAge: day, scene: func(s *scene) *scene {
			return s.hold(s.b, s.a).trust(day, s.b, s.a).serve(s.b, time.Hour).with(func(s *scene) { s.o.authorities.retiredUntil = s.now.Add(-skew) })
		}, want: drop},
		{name: "an old authority that a person replaced, before every server has the new certificate", aAge: day, bAge: time.Hour, scene: func(s *scene) *scene {
			return s.hold(s.b, s.a).trust(day, s.b, s.a).serve(s.b, time.Minute).with(func(s *scene) {
				s.o.authorities.retiredUntil, s.o.authorities.rotateBefore = s.now.Add(day), s.now.Add(-2*time.Hour)
			})
		}, want: rest, after: 4 * time.Minute},
		{name: "an old authority that a person replaced, after that", aAge: day, bAge: time.Hour, scene: func(s *scene) *scene {
			return s.hold(s.b, s.a).trust(day, s.b, s.a).serve(s.b, 5*time.Minute).with(func(s *scene) {
				s.o.authorities.retiredUntil, s.o.authorities.rotateBefore = s.now.Add(day), s.now.Add(-2*time.Hour)
			})
		}, want: drop},
		{name: "an old authority while its certificate is the one that is served", aAge: day, scene: func(s *scene) *scene {
			return s.hold(s.b, s.a).trust(time.Minute, s.b, s.a).serve(s.a, day).with(func(s *scene) { s.o.authorities.retiredUntil = s.now.Add(-day) })
		}, want: rest, after: 4 * time.Minute},
		{name: "the API trusts one that was dropped", scene: func(s *scene) *scene { return s.hold(s.b).trust(day, s.b, s.a).serve(s.b, day) }, want: publish},
		{name: "the API trusts somebody else", scene: func(s *scene) *scene { return s.hold(s.a).trust(day, s.b).serve(s.a, day) }, want: publish},
		{name: "it isn't known since when the API trusts", scene: func(s *scene) *scene {
			return s.hold(s.a).trust(day, s.a).serve(s.a, day).with(func(s *scene) { s.o.published.since = time.Time{} })
		}, want: publish},
		{name: "the API trusts since tomorrow", scene: func(s *scene) *scene { return s.hold(s.a).trust(-day, s.a).serve(s.a, day) }, want: publish},
		{name: "an authority that expired", aAge: 366 * day, scene: func(s *scene) *scene { return s.hold(s.a).trust(day, s.a).serve(s.a, 366*day) }, want: makeAuthority},
		{name: "they are somebody else's", scene: func(s *scene) *scene { return s.with(func(s *scene) { s.o.notOurs = "cert-manager" }) }, want: rest, after: recheck},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := tc.scene(newScene(t, tc.aAge, tc.bAge))
			got := plan(s.o, s.s, s.now)
			if diff := cmp.Diff([]any{tc.want, tc.after}, []any{got.action, got.after}); diff != "" {
				t.Errorf("next step and when to look again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Settings)
		wrong  bool
	}{
		"the defaults":                              {change: func(*Settings) {}},
		"further names":                             {change: func(s *Settings) { s.Names = []string{"localhost", "127.0.0.1", "fd00::1"} }},
		"a name that is none":                       {change: func(s *Settings) { s.Names = []string{"a b"} }, wrong: true},
		"certificates for a second":                 {change: func(s *Settings) { s.LeafLifetime = time.Second }, wrong: true},
		"an authority that ends before it is due":   {change: func(s *Settings) { s.AuthorityLifetime = 2 * s.LeafLifetime }, wrong: true},
		"a propagation that a life has no room for": {change: func(s *Settings) { s.Propagation = s.LeafLifetime / 3 }, wrong: true},
		"no propagation at all":                     {change: func(s *Settings) { s.Propagation = 0 }, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := DefaultSettings()
			tc.change(&s)
			if err := s.Validate(); (err != nil) != tc.wrong {
				t.Errorf("want refused %v, got %v", tc.wrong, err)
			}
		})
	}
}
