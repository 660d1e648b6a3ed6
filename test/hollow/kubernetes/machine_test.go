// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// The workload under a whole hollow machine, seen through the Talos API and the kubeconfig it hands out.
func TestAWholeMachineFromMaintenanceToReady(t *testing.T) {
	rack := hollowtest.NewRack(t)
	rack.Workload = newFactory(t, nil)

	m := rack.Machine()
	cluster := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	n := rack.Start(m)

	ctx, cancel := context.WithTimeout(t.Context(), patience(bootLimit))
	defer cancel()

	reach := func(what string, condition func(node.Status) bool) {
		t.Helper()

		status, err := n.WaitFor(ctx, condition)
		if err != nil {
			t.Fatalf("%s: %v, status is %+v", what, err, status)
		}
	}

	reach("maintenance", node.InMaintenance)

	_, err := hollowtest.Insecure(t, n).ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
		Data: cluster.Config(machinetype.TypeControlPlane), Mode: machine.ApplyConfigurationRequest_AUTO,
	})
	if err != nil {
		t.Fatal(err)
	}

	reach("waiting for bootstrap", func(s node.Status) bool {
		return s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
	})

	admin := cluster.Connect(n, role.Admin)
	if err = admin.Bootstrap(ctx, &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	reach("running and ready", node.Running)

	kubeconfig, err := admin.Kubeconfig(ctx)
	if err != nil {
		t.Fatal(err)
	}

	restConfig, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	httpClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(httpClient.CloseIdleConnections)

	client, err := clientset.NewForConfigAndClient(restConfig, httpClient)
	if err != nil {
		t.Fatal(err)
	}

	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if len(nodes.Items) != 1 || nodes.Items[0].Name != n.Status().Hostname || nodes.Items[0].Status.NodeInfo.BootID != n.Status().BootID {
		t.Errorf("nodes are %v, want %s alone in boot %s", nodes.Items, n.Status().Hostname, n.Status().BootID)
	}

	snapshot, err := admin.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}

	size, err := io.Copy(io.Discard, snapshot)
	if err != nil || size == 0 {
		t.Errorf("snapshot through the Talos API: %d bytes, %v", size, err)
	}
}
