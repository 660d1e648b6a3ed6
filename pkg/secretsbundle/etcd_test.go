// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"bytes"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestTheAPIServersEtcdCertificate(t *testing.T) {
	t.Parallel()
	bundle, now := generate(t), time.Now()
	client := fake.NewClientset()
	store := Store{Secrets: client.CoreV1()}
	if err := store.RenewEtcdClient(t.Context(), bundle, now); err != nil {
		t.Fatal(err)
	}
	if list, err := client.CoreV1().Secrets(v1alpha1.SystemNamespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Fatalf("a certificate was made for nobody: %v", err)
	}
	first, err := store.EnsureEtcdClient(t.Context(), bundle, now)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, parse(t, first.Certificate), first.CA, now)
	for name, tc := range map[string]struct {
		bundle *Bundle
		at     time.Time
		same   bool
	}{
		"the next day":         {bundle: bundle, at: now.Add(24 * time.Hour), same: true},
		"after half of a year": {bundle: bundle, at: now.Add(EtcdCertificateTTL/2 + time.Hour)},
		"after it has ended":   {bundle: bundle, at: now.Add(2 * EtcdCertificateTTL)},
		"of another bundle":    {bundle: another(t), at: now},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := Store{Secrets: fake.NewClientset().CoreV1()}
			before, err := store.EnsureEtcdClient(t.Context(), bundle, now)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.RenewEtcdClient(t.Context(), tc.bundle, tc.at); err != nil {
				t.Fatal(err)
			}
			after, err := store.EnsureEtcdClient(t.Context(), tc.bundle, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Equal(before.Certificate, after.Certificate); got != tc.same {
				t.Errorf("same certificate: want %v, got %v", tc.same, got)
			}
			verify(t, parse(t, after.Certificate), after.CA, tc.at)
		})
	}
}
