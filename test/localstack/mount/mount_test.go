// SPDX-License-Identifier: Apache-2.0

package mount_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"maesh.dev/ichor/test/localstack/mount"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func secret(data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// files are the files in a folder that a program would read.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, key := range []string{"a", "b", "c"} {
		if text, err := os.ReadFile(filepath.Join(dir, key)); err == nil {
			out[key] = string(text)
		}
	}
	return out
}

func TestFilesFollowTheSecret(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	client, dir := fake.NewClientset(), filepath.Join(t.TempDir(), "volume")
	volume, run := mount.Secret(client, "n", "s", dir, slog.New(slog.DiscardHandler))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	defer func() { cancel(); <-ended }()

	first := map[string]string{"a": "1", "b": "1"}
	if _, err := client.CoreV1().Secrets("n").Create(ctx, secret(first), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waiting, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if err := volume.Wait(waiting); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	second := map[string]string{"b": "2", "c": "2"}
	if _, err := client.CoreV1().Secrets("n").Update(ctx, secret(second), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for !cmp.Equal(second, files(t, dir)) {
		select {
		case <-waiting.Done():
			t.Fatalf("files (-want +got):\n%s", cmp.Diff(second, files(t, dir)))
		case <-time.After(5 * time.Millisecond):
		}
	}
	eventually := func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "..version-*"))
		return err == nil && len(left) == 1
	}
	for !eventually() {
		select {
		case <-waiting.Done():
			t.Fatal("earlier versions are left behind")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
