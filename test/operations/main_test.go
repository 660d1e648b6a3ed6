// SPDX-License-Identifier: Apache-2.0

// Package operations_test holds what operations do to Kubernetes against a real one: a hollow control plane with
// kube-apiserver, the controllers that judge PodDisruptionBudgets and gather roles, and the rights of the manifests. No
// kubelet runs the pods: a test does what one would.
package operations_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/kubernetes"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack/install"
)

// TestMain lets the test binary be etcd, which the hollow node starts from it.
func TestMain(m *testing.M) {
	if handled, code := kubernetes.ChildMain(os.Args); handled {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// startFor bounds the start of the control plane, and patience one step, on a busy computer.
const (
	startFor = 5 * time.Minute
	patience = 2 * time.Minute
)

// world is a cluster with Ichor's accounts.
type world struct {
	// admin may do everything; controller may do what ichor-controller may.
	admin, controller *clientset.Clientset
	// objects are any, as ichor-controller.
	objects dynamic.Interface
}

func start(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startFor)
	defer cancel()
	kube := os.Getenv("ICHOR_KUBE_BIN")
	if kube == "" {
		kube = filepath.Join("..", "..", "bin", "kube")
	}
	kube, err := filepath.Abs(kube)
	must(t, err)
	rack := hollowtest.NewRack(t)
	rack.Workload, err = kubernetes.New(kubernetes.Options{
		Kube: kube, Controllers: []string{"disruption-controller"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	m := rack.Machine()
	cluster := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	n := rack.Start(m)
	reach := func(condition func(node.Status) bool) {
		t.Helper()
		if status, err := n.WaitFor(ctx, condition); err != nil {
			t.Fatalf("%v, status is %+v", err, status)
		}
	}
	reach(node.InMaintenance)
	_, err = hollowtest.Insecure(t, n).ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
		Data: cluster.Config(machinetype.TypeControlPlane), Mode: machine.ApplyConfigurationRequest_AUTO,
	})
	must(t, err)
	reach(func(s node.Status) bool {
		return s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
	})
	talos := cluster.Connect(n, role.Admin)
	must(t, talos.Bootstrap(ctx, &machine.BootstrapRequest{}))
	reach(node.Running)
	kubeconfig, err := talos.Kubeconfig(ctx)
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	config.QPS, config.Burst = 100, 200
	must(t, install.Accounts(ctx, config))

	controller := rest.CopyConfig(config)
	controller.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:ichor-system:ichor-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:ichor-system", "system:authenticated"},
	}
	w := &world{}
	w.admin = clientset.NewForConfigOrDie(withConnections(t, config))
	controller = withConnections(t, controller)
	w.controller = clientset.NewForConfigOrDie(controller)
	w.objects = dynamic.NewForConfigOrDie(controller)
	return w
}

// withConnections is a configuration whose connections end with the test.
func withConnections(t *testing.T, config *rest.Config) *rest.Config {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return config
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until look has no more to say against it.
func eventually(t *testing.T, what string, look func() string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = look()
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", what, err, last)
	}
}
