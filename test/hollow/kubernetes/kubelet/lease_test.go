// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestALeaseIsAsLongAsTheConfigurationSays(t *testing.T) {
	t.Parallel()

	client := fake.NewClientset()
	holder := leaseHolder{seconds: 120}

	for range 2 {
		if err := holder.renew(t.Context(), client, "a"); err != nil {
			t.Fatal(err)
		}
	}

	lease, err := client.CoordinationV1().Leases(leaseNamespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if got := *lease.Spec.LeaseDurationSeconds; got != 120 {
		t.Errorf("it is %d seconds long", got)
	}
}

func TestHowOftenALeaseIsRenewed(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		options Options
		want    time.Duration
	}{
		"as a kubelet by itself":         {Options{}, 10 * time.Second},
		"by the length of a longer one":  {Options{LeaseSeconds: 120}, 30 * time.Second},
		"as a test wants it, in any way": {Options{LeaseSeconds: 120, LeaseEvery: time.Second}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := test.options.withDefaults().LeaseEvery; got != test.want {
				t.Errorf("every %s, want %s", got, test.want)
			}
		})
	}
}
