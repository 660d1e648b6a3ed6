// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

func clientOf(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.IchorV1alpha1().RESTClient()
}

// ownMetrics are the samples of a server whose names begin with ichor_.
func (w *world) ownMetrics(t *testing.T) map[string]string {
	t.Helper()
	body, err := w.raw(t).Get().AbsPath("/metrics").Do(testContext(t)).Raw()
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	samples := map[string]string{}
	for line := range strings.Lines(string(body)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), " "); found && strings.HasPrefix(name, "ichor_") {
			samples[name] = value
		}
	}
	return samples
}

// A server in a process of its own, because metrics are the process's: approvals up to the limit and what was refused.
func TestOwnMetrics(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t, harness.Servers(0)), testContext(t)
	server := env.ServeProcess(t, 0)
	w := &world{
		Env: env, admin: env.Client(t, server, harness.Root), approver: env.Client(t, server, harness.Approver),
		writer: env.Client(t, server, harness.Writer), controller: env.Client(t, server, harness.Controller),
	}
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Create(ctx, cluster(1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	decide := func(client *versioned.Clientset, n int, change func(*v1alpha1.TalosMachine), options metav1.UpdateOptions) {
		t.Helper()
		machine := w.discover(t, n)
		change(machine)
		_, _ = client.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, machine.Name, machine, options) // what came of it is counted
	}
	as := func(role v1alpha1.MachineRole, hostname string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { *m = *approve(m, role); m.Spec.Hostname = hostname }
	}
	plain := metav1.UpdateOptions{}
	decide(w.approver, 0, as(v1alpha1.RoleControlPlane, "cp-0"), plain)
	decide(w.approver, 1, as(v1alpha1.RoleControlPlane, "cp-0"), plain)
	decide(w.approver, 2, as(v1alpha1.RoleControlPlane, "cp-2"), plain)
	decide(w.approver, 3, as(v1alpha1.RoleControlPlane, "cp-3"), plain)
	decide(w.approver, 4, as(v1alpha1.RoleWorker, ""), plain)
	decide(w.approver, 5, as(v1alpha1.RoleWorker, ""), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	decide(w.approver, 6, func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalRejected }, plain)
	decide(w.approver, 7, as("captain", ""), plain)
	decide(w.writer, 8, as(v1alpha1.RoleWorker, ""), plain)
	decide(w.approver, 9, func(m *v1alpha1.TalosMachine) { *m = *approve(m, v1alpha1.RoleWorker); m.ResourceVersion = "1" }, plain)

	want := map[string]string{
		`ichor_controlplane_slots{cluster="prod",state="held"}`:                 "2",
		`ichor_controlplane_slots{cluster="prod",state="free"}`:                 "0",
		`ichor_approval_decisions_total{result="approved",role="controlplane"}`: "2",
		`ichor_approval_decisions_total{result="approved",role="worker"}`:       "1",
		`ichor_approval_decisions_total{result="rejected",role=""}`:             "1",
		`ichor_approval_decisions_total{result="limit",role=""}`:                "1",
		`ichor_approval_decisions_total{result="invalid",role=""}`:              "2",
		`ichor_approval_decisions_total{result="forbidden",role=""}`:            "1",
		`ichor_approval_decisions_total{result="conflict",role=""}`:             "1",
	}
	eventually(t, "all slots that are held are those of machines that are approved", func() bool {
		return w.ownMetrics(t)[`ichor_controlplane_slots{cluster="prod",state="held"}`] == "2"
	})
	got := w.ownMetrics(t)
	for name := range got {
		if strings.HasPrefix(name, "ichor_controlplane_slots_reaped_total") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}

	// A control plane that is gone frees its slot.
	if err := w.approver.IchorV1alpha1().TalosMachines().Delete(ctx, machineUUID(2), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone, err := w.controller.IchorV1alpha1().TalosMachines().Get(ctx, machineUUID(2), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gone.Finalizers = nil
	if _, err := w.controller.IchorV1alpha1().TalosMachines().Finalize(ctx, gone.Name, gone, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slot of a machine that is gone is free", func() bool {
		samples := w.ownMetrics(t)
		return samples[`ichor_controlplane_slots{cluster="prod",state="free"}`] == "1" && samples[`ichor_controlplane_slots_reaped_total{result="freed"}`] != ""
	})
}

// What a scrape may see is the authorizer's to say.
func TestMetricsAreNotForEverybody(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	if err := env.Client(t, 0, "nobody").IchorV1alpha1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Error(); err == nil {
		t.Error("somebody without rights scraped the server")
	}
}
