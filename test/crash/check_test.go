// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/test/crash/killer"
)

// kills are what a part was killed at.
func (c *crashes) kills(t *testing.T, part string) []string {
	t.Helper()
	keys, err := killer.Read(journal(part))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// tell says how often what was killed and started.
func (c *crashes) tell(t *testing.T) {
	t.Helper()
	for _, part := range []string{partBootstrap, asController} {
		t.Logf("%5.1fs %s was killed at %d writes:\n%s", time.Since(c.begin).Seconds(), part, len(c.kills(t, part)), strings.Join(c.kills(t, part), "\n"))
	}
	t.Logf("started %v, killed at random %v", tally(t, "starts"), tally(t, "strikes"))
}

// tally counts the equal lines of a file.
func tally(t *testing.T, name string) map[string]int {
	t.Helper()
	lines, err := killer.Read(at(name))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, line := range lines {
		out[line]++
	}
	return out
}

// musts are writes without which a run didn't kill where it matters.
var musts = map[string][]string{
	partBootstrap: {
		"first ApplyConfiguration", "Bootstrap", "create namespaces", "create secrets", "install", "create talosclusters", "create talosmachines",
		"update talosmachines/status", "update talosmachines/approval",
	},
	asController: {
		"create leases", "update leases", "create talosmachines", "update talosmachines/status", "update talosclusters/status",
		"first ApplyConfiguration",
	},
}

// checkWrites holds the kills against what a run can't do without.
func (c *crashes) checkWrites(t *testing.T, p plan) {
	t.Helper()
	random := 0
	for _, count := range tally(t, "strikes") {
		random += count
	}
	if random > p.early+p.late || random < p.late {
		t.Errorf("%d random kills, want up to %d of the bootstrap and %d of the controller", random, p.early, p.late)
	}
	if p.calm {
		return
	}
	for part, acts := range musts {
		keys := c.kills(t, part)
		for _, act := range acts {
			if !slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, " "+act) }) {
				t.Errorf("%s was never killed at %q", part, act)
			}
		}
	}
	applies := slices.DeleteFunc(append(c.kills(t, partBootstrap), c.kills(t, asController)...), func(key string) bool {
		return strings.HasPrefix(key, string(killer.Unsent)) || !strings.Contains(key, " first ApplyConfiguration ")
	})
	// Machines that are given theirs at the same time may meet the same kill.
	if len(applies) < 2 {
		t.Errorf("killed %d times while a machine was given its configuration, want at least twice: %q", len(applies), applies)
	}
}

// applyMethod gives a machine its configuration.
const applyMethod = "/machine.MachineService/ApplyConfiguration"

// checkMachines asks the machines themselves, and Kubernetes.
func (c *crashes) checkMachines(t *testing.T) {
	t.Helper()
	bootstraps := int64(0)
	all := c.stack.Fleet().Machines
	for i := range all {
		console, err := c.stack.Machines().Status(t.Context(), all[i].Name)
		if err != nil {
			t.Fatal(err)
		}
		bootstraps += console.Bootstraps
		applies, err := c.stack.Machines().Applies(t.Context(), all[i].Name)
		if err != nil {
			t.Fatal(err)
		}
		if len(applies) != 1 || !applies[0].Accepted || applies[0].DryRun || !applies[0].Maintenance {
			t.Errorf("machine %s was sent other than exactly one configuration: %+v", all[i].Name, applies)
			continue
		}
		// One that was still on its way inside of the machine when another took effect is in no record, but was received.
		if received := console.Calls[applyMethod]; received.RequestBytes >= 2*uint64(applies[0].Size) {
			t.Errorf("machine %s received more than one configuration: %d bytes in %d calls, and the one that it took has %d", all[i].Name, received.RequestBytes, received.Count, applies[0].Size)
		}
	}
	if bootstraps != 1 {
		t.Errorf("etcd was bootstrapped %d times, want once", bootstraps)
	}
	nodes, err := c.kubernetes.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		names = append(names, node.Name)
		if !slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}) {
			t.Errorf("Node %s is not ready", node.Name)
		}
	}
	slices.Sort(names)
	want := []string{"cp-1"}
	for _, each := range joining {
		want = append(want, each.hostname)
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the Nodes are %q, want %q", names, want)
	}
}

// checkCluster holds the slots against the machines, and the bundle against the one that the bootstrap made.
func (c *crashes) checkCluster(t *testing.T) {
	t.Helper()
	holders := map[string]bool{}
	machines := c.machines(t)
	for i := range machines {
		if machines[i].Spec.Role == v1alpha1.RoleControlPlane {
			holders[string(machines[i].UID)] = true
		}
	}
	eventually(t, time.Minute, func() error {
		status := c.cluster(t).Status
		voters := 0
		for _, member := range status.EtcdMembers {
			if !member.Learner {
				voters++
			}
		}
		if voters != len(holders) || int(status.ControlPlanes.Ready) != len(holders) {
			return fmt.Errorf("etcd members %+v, control planes %+v; want %d voters, as many ready", status.EtcdMembers, status.ControlPlanes, len(holders))
		}
		return nil
	})
	slots := c.cluster(t).Status.ControlPlaneSlots
	for _, slot := range slots {
		if !holders[string(slot.MachineUID)] {
			t.Errorf("the slot %+v is nobody's", slot)
		}
	}
	if len(slots) != len(holders) {
		t.Errorf("%d slots for %d control planes: %+v", len(slots), len(holders), slots)
	}
	text, err := os.ReadFile(filepath.Join(c.stack.Dir().Bootstrap(), "bundle.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := secretsbundle.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := secretsbundle.Parse(c.secret(t).Data[v1alpha1.SecretsBundleKey])
	if err != nil {
		t.Fatal(err)
	}
	if made.Hash() != stored.Hash() {
		t.Errorf("the Secret holds the bundle %.12s, the bootstrap made %.12s", stored.Hash(), made.Hash())
	}
}

// nobodyOf is nil if no process has the folder in its arguments.
func nobodyOf(dir string) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), dir) {
			return fmt.Errorf("%s still runs: %s", filepath.Base(filepath.Dir(file)), strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return nil
}

// tail is the end of a log file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}
