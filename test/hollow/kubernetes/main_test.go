// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/test/hollow/kubernetes"
	"maesh.dev/ichor/test/hollow/loopback"
	"maesh.dev/ichor/test/hollow/workload"
)

// TestMain lets the test binary be etcd, which the nodes under test start from it.
func TestMain(m *testing.M) {
	if handled, code := kubernetes.ChildMain(os.Args); handled {
		os.Exit(code)
	}

	goleak.VerifyTestMain(m)
}

// patience is how long a slow step may take; CI machines are slower than a developer's.
func patience(d time.Duration) time.Duration {
	if os.Getenv("CI") != "" {
		return 4 * d
	}

	return d
}

const (
	bootLimit = 2 * time.Minute
	poll      = 100 * time.Millisecond
)

// kubePath finds the multi-call binary: ICHOR_KUBE_BIN, else bin/kube of the repository.
func kubePath(t *testing.T) string {
	t.Helper()

	path := os.Getenv("ICHOR_KUBE_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "..", "bin", "kube")
	}

	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}

	if _, err = os.Stat(path); err != nil {
		t.Fatalf("no kube binary at %s: build it with make build, or set ICHOR_KUBE_BIN to its path", path)
	}

	return path
}

func newFactory(t *testing.T, change func(*kubernetes.Options)) *kubernetes.Factory {
	t.Helper()

	options := kubernetes.Options{Kube: kubePath(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&options)
	}

	factory, err := kubernetes.New(options)
	if err != nil {
		t.Fatal(err)
	}

	return factory
}

// claim takes loopback addresses that no other test uses.
func claim(t *testing.T) *loopback.Block {
	t.Helper()

	block, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := block.Close(); err != nil {
			t.Error(err)
		}
	})

	return block
}

// endpoint is the API server at an address.
func endpoint(address netip.Addr) string {
	return "https://" + netip.AddrPortFrom(address, 6443).String()
}

// box is a machine under test: its disk survives boots.
type box struct {
	factory *kubernetes.Factory
	machine workload.Machine
	boots   int

	runtime workload.Runtime

	mu      sync.Mutex
	status  workload.Status
	history []workload.Status
}

func newBox(t *testing.T, factory *kubernetes.Factory, name string, address netip.Addr, cfg config.Provider) *box {
	t.Helper()

	dir := t.TempDir()
	b := &box{factory: factory, machine: workload.Machine{
		Name: name, Address: address, Hostname: name, TalosVersion: "v1.13.9", Config: cfg,
		EphemeralDir: filepath.Join(dir, "var"), LogDir: filepath.Join(dir, "logs"),
		CPUs: 4, MemoryBytes: 8 << 30, MachineID: "0123456789abcdef0123456789abcdef",
		SystemUUID: "4c4c4544-0051-3610-8052-b4c04f4c3132",
	}}

	t.Cleanup(func() {
		if b.runtime != nil {
			b.stop(t, true)
		}

		if t.Failed() {
			b.printLogs(t)
		}
	})

	return b
}

// boot starts the machine.
func (b *box) boot(t *testing.T) {
	t.Helper()

	b.mu.Lock()
	b.status = workload.Status{}
	b.mu.Unlock()

	b.boots++
	b.machine.BootID = fmt.Sprintf("00000000-0000-4000-8000-%012d", b.boots)

	boot, err := b.factory.Start(b.machine, func(status workload.Status) {
		b.mu.Lock()
		defer b.mu.Unlock()

		b.status = status
		b.history = append(b.history, status)
	})
	if err != nil {
		t.Fatal(err)
	}

	b.runtime = boot
}

// stop ends the boot, as a power cut or in order.
func (b *box) stop(t *testing.T, kill bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
	defer cancel()

	b.runtime.Stop(ctx, kill)
	b.runtime = nil
}

// wipe empties what stands for the EPHEMERAL partition.
func (b *box) wipe(t *testing.T) {
	t.Helper()

	if err := os.RemoveAll(b.machine.EphemeralDir); err != nil {
		t.Fatal(err)
	}
}

func (b *box) current() workload.Status {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.status
}

// wait waits until the status is as wanted.
func (b *box) wait(t *testing.T, what string, wanted func(workload.Status) bool) {
	t.Helper()

	waitUntil(t, b.machine.Name+": "+what, func() error {
		if status := b.current(); !wanted(status) {
			return fmt.Errorf("status is %+v", status)
		}

		return nil
	})
}

// bootstrap retries as clients of Talos do.
func (b *box) bootstrap(t *testing.T, request *machine.BootstrapRequest) {
	t.Helper()

	waitUntil(t, b.machine.Name+": bootstrap accepted", func() error {
		err := b.runtime.Bootstrap(t.Context(), request)
		if status.Code(err) == codes.AlreadyExists {
			return nil
		}

		return err
	})
}

// client is an administrator's client of this machine's API server.
func (b *box) client(t *testing.T) (*clientset.Clientset, *rest.Config) {
	t.Helper()

	kubeconfig, err := b.runtime.Kubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	restConfig, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	restConfig.Host = endpoint(b.machine.Address)
	restConfig.Timeout = patience(10 * time.Second)

	httpClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(httpClient.CloseIdleConnections)

	client, err := clientset.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		t.Fatal(err)
	}

	return client, restConfig
}

// printLogs shows the end of each child's log.
func (b *box) printLogs(t *testing.T) {
	const last = 4000

	files, err := filepath.Glob(filepath.Join(b.machine.LogDir, b.machine.Name+"-*.log"))
	if err != nil {
		t.Log(err)
	}

	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Log(err)

			continue
		}

		t.Logf("%s ends with:\n%s", filepath.Base(file), content[max(0, len(content)-last):])
	}
}

// waitUntil waits until check finds nothing to complain about.
func waitUntil(t *testing.T, what string, check func() error) {
	t.Helper()

	started := time.Now()
	deadline := started.Add(patience(bootLimit))

	ticker := time.NewTicker(poll)
	defer ticker.Stop()

	for {
		err := check()
		if err == nil {
			t.Logf("%s after %s", what, time.Since(started).Round(poll))

			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience(bootLimit), err)
		}

		<-ticker.C
	}
}

func service(status workload.Status, id string) workload.Service {
	for _, service := range status.Services {
		if service.ID == id {
			return service
		}
	}

	return workload.Service{}
}

// isUp tells that a machine is as Talos calls it ready: services healthy, static pods ready, node ready.
func isUp(status workload.Status) bool {
	for _, service := range status.Services {
		if !service.Running || !service.Healthy {
			return false
		}
	}

	for _, pod := range status.StaticPods {
		if !pod.Ready {
			return false
		}
	}

	return len(status.Services) > 0 && status.NodeReady
}
