// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestABundleThatWasReadAMomentAgoIsNotReadAgain(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	store, bundle := Store{Secrets: client.CoreV1()}, generate(t)
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.TalosClusterSpec{SecretsRef: ref}}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	recent := &Recent{Store: store, Clock: clock}
	if _, err := recent.LoadFor(t.Context(), cluster); !errors.Is(err, ErrMissing) {
		t.Fatalf("want %v, got %v", ErrMissing, err)
	}
	if err := store.Create(t.Context(), ref, "prod", bundle); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := recent.LoadFor(t.Context(), cluster); err != nil || got.Hash() != bundle.Hash() {
			t.Fatalf("got %v, error %v", got, err)
		}
	}
	read := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "get" {
			read++
		}
	}
	if read != 2 { // once when it wasn't there, once when it was
		t.Errorf("the Secret was read %d times", read)
	}
	if err := client.CoreV1().Secrets(ref.Namespace).Delete(t.Context(), ref.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(recentFor + time.Second))
	if _, err := recent.LoadFor(t.Context(), cluster); !errors.Is(err, ErrMissing) {
		t.Errorf("want %v once it is gone, got %v", ErrMissing, err)
	}
}

func TestARecentBundleIsHeldAgainstItsCluster(t *testing.T) {
	t.Parallel()
	store, bundle := Store{Secrets: fake.NewClientset().CoreV1()}, generate(t)
	if err := store.Create(t.Context(), ref, "prod", bundle); err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.TalosClusterSpec{SecretsRef: ref}}
	recent := &Recent{Store: store, Clock: clocktesting.NewFakePassiveClock(time.Now())}
	if _, err := recent.LoadFor(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status.SecretsBundleHash = another(t).Hash()
	if got, err := recent.LoadFor(t.Context(), cluster); !errors.Is(err, ErrChanged) || got != nil {
		t.Errorf("want %v, got %v, %v", ErrChanged, got, err)
	}
}

func TestABundleThatWasReplacedAMomentAgoIsReadAnew(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	store, bundle, next := Store{Secrets: client.CoreV1()}, generate(t), another(t)
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.TalosClusterSpec{SecretsRef: ref}}
	recent := &Recent{Store: store, Clock: clocktesting.NewFakePassiveClock(time.Now())}
	for _, each := range []*Bundle{bundle, next} {
		_ = client.CoreV1().Secrets(ref.Namespace).Delete(t.Context(), ref.Name, metav1.DeleteOptions{})
		if err := store.Create(t.Context(), ref, "prod", each); err != nil {
			t.Fatal(err)
		}
		cluster.Status.SecretsBundleHash = each.Hash()
		if got, err := recent.LoadFor(t.Context(), cluster); err != nil || got.Hash() != each.Hash() {
			t.Errorf("got %v, error %v", got, err)
		}
	}
}
