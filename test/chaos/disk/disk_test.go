// SPDX-License-Identifier: Apache-2.0

//go:build chaosdisk

package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
	"maesh.dev/ichor/test/hollow/kubernetes/process"
)

const (
	// size of the disk in MiB: etcd sets aside two files of 64 MiB for its log.
	size = 192
	// ballast is as much as annotations may be, in bytes.
	ballast = 200 << 10
	// patience bounds each wait.
	patience = 2 * time.Minute
)

func TestMain(m *testing.M) {
	code := m.Run()
	harness.Close()
	os.Exit(code)
}

// TestADiskThatIsFull fills the disk while people write. etcd ends when it can't write; meanwhile each write is refused
// in words and none is a bare 500, and lists that may be old go on. With room again, and nothing else done, etcd comes back
// by itself and everything that was acknowledged is there.
func TestADiskThatIsFull(t *testing.T) {
	disk := mount(t)
	endpoint := startEtcd(t, filepath.Join(disk, "etcd"))
	env := harness.Start(t, harness.Servers(0))
	options := env.Options(t)
	options.Recommended.Etcd.StorageConfig.Transport.ServerList = []string{endpoint}
	client := env.Client(t, env.Serve(t, options, harness.Run), harness.Admin)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	cluster.Spec.SecretsRef = v1alpha1.SecretReference{Namespace: v1alpha1.SystemNamespace, Name: "prod-secrets"}
	cluster.Spec.ControlPlane = v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}}
	if _, err := client.IchorV1alpha1().TalosClusters().Create(ctx, cluster, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	write := func() error {
		name := fmt.Sprintf("patch-%d", len(acknowledged))
		err := create(ctx, client, name)
		if err == nil {
			acknowledged = append(acknowledged, name)
		}
		return err
	}
	for range 10 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}

	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	var refused error
	for n := 0; n < 200 && refused == nil; n++ {
		refused = write()
	}
	if refused == nil {
		t.Fatalf("%d writes of %d bytes went onto a full disk", len(acknowledged), ballast)
	}
	// What the writes are answered from now on, while etcd ends again and again.
	for range 5 {
		if !refusedInWords(refused) {
			t.Errorf("a write is answered %v (%s)", refused, apierrors.ReasonForError(refused))
		}
		refused = create(ctx, client, fmt.Sprintf("refused-%d", time.Now().UnixNano()))
		if refused == nil {
			t.Log("a write found room")
			break
		}
	}
	list, err := client.IchorV1alpha1().TalosConfigPatches().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(list.Items) < 10 {
		t.Errorf("a list that may be old: %v", err)
	}
	t.Logf("%d writes were acknowledged; then: %v", len(acknowledged), refused)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return create(ctx, client, "after") == nil, nil
	}); err != nil {
		t.Fatalf("with room again, writes still fail: %v", create(ctx, client, "after"))
	}
	t.Logf("writes succeed %s after there is room", time.Since(begin).Round(100*time.Millisecond))
	for _, name := range acknowledged {
		if got, err := client.IchorV1alpha1().TalosConfigPatches().Get(ctx, name, metav1.GetOptions{}); err != nil || len(got.Annotations["ballast"]) != ballast {
			t.Errorf("%s was acknowledged: %v", name, err)
		}
	}
}

// refusedInWords tells whether an answer says that the storage is at fault: etcd's own refusal, or, while it is away, that
// the request took too long, as Kubernetes' own servers answer then.
func refusedInWords(err error) bool {
	return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "etcd") || apierrors.IsTimeout(err)
}

func create(ctx context.Context, client *versioned.Clientset, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"ballast": strings.Repeat("b", ballast)}}}
	patch.Spec.Target.ClusterRef.Name = "prod"
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(`{"sysctls":{"vm.swappiness":"1"}}`)}
	_, err := client.IchorV1alpha1().TalosConfigPatches().Create(ctx, patch, metav1.CreateOptions{})
	return err
}

// mount makes a small file system.
func mount(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		t.Fatalf("mount a file system of %d MiB, which needs root: %v", size, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill takes all the room that there is.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for chunk := bytes.Repeat([]byte("f"), 64<<10); ; {
		if _, err := file.Write(chunk); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if len(chunk) == 1 {
				return
			}
			chunk = chunk[:len(chunk)/2]
		}
	}
}

// startEtcd runs a real etcd that is started again whenever it ends, as a kubelet would.
func startEtcd(t *testing.T, dir string) string {
	t.Helper()
	hollow, err := filepath.Abs(filepath.Join("..", "..", "..", "bin", "hollow"))
	if err != nil {
		t.Fatal(err)
	}
	client, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	logs := filepath.Join(t.TempDir(), "etcd.log")
	child := process.Start(process.Spec{
		Name: "etcd", Path: hollow, LogFile: logs, Logger: slog.New(slog.DiscardHandler),
		Args: []string{
			"hollow-child", "etcd", "--name=etcd", "--data-dir=" + dir, "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer, "--log-level=warn",
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		child.Stop(ctx)
		if text, err := os.ReadFile(logs); err == nil && t.Failed() {
			t.Logf("etcd's log ends with:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return client
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
