// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
)

// destroyFor bounds the end of all machines of a cluster.
const destroyFor = 6 * time.Minute

// destroyed destroys the cluster that carries the API on which Ichor runs, while the controller dies at each of its writes.
// What was done is asked of the machines, as nothing else is left in the end: each was told to wipe itself once, without any
// disk that nobody named; the workers first, then the control planes, each once the one before was wiped; and the last, which
// has no etcd to leave, ungracefully.
func (c *crashes) destroyed(t *testing.T, p plan) {
	t.Helper()
	before, machines := len(c.kills(t, asController)), c.machines(t)
	clusters := c.ichor.IchorV1alpha1().TalosClusters()
	err := clusters.Delete(t.Context(), localstack.ClusterName, metav1.DeleteOptions{})
	if err == nil || !slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool { return strings.Contains(err.Error(), m.Name) }) {
		t.Fatalf("a cluster with members was deleted, or they aren't named: %v", err)
	}
	policy, err := json.Marshal(map[string]any{"spec": map[string]any{
		"deletionPolicy": v1alpha1.ClusterDeletionDestroy, "deletionConsent": localstack.ClusterName,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clusters.Patch(t.Context(), localstack.ClusterName, types.MergePatchType, policy, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clusters.Delete(t.Context(), localstack.ClusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, destroyFor, func() error {
		for i := range machines {
			hardware := c.hardware(t, machines[i].Name)
			status, err := c.stack.Machines().Status(t.Context(), hardware.Name)
			if err != nil {
				return err
			}
			if !node.InMaintenance(status) { // what is wiped are STATE and EPHEMERAL: Talos stays on its disk
				return fmt.Errorf("machine %s (%s) is %s, mode %s", hardware.Name, machines[i].Spec.Hostname, status.Stage, status.Mode)
			}
		}
		return nil
	})
	c.checkDestroyed(t, machines)
	if kills := c.kills(t, asController)[before:]; !p.calm {
		for _, act := range []string{"Reset", "delete talosmachines", "update talosmachines/status", "update talosclusters/status"} {
			if !slices.ContainsFunc(kills, func(key string) bool { return strings.Contains(key, " "+act) }) {
				t.Errorf("the controller was never killed at %q while it destroyed the cluster: %q", act, kills)
			}
		}
		t.Logf("%5.1fs the cluster was destroyed over %d kills", time.Since(c.begin).Seconds(), len(kills))
	}
}

// end is how a machine ended.
type end struct {
	name, hostname string
	controlPlane   bool
	// told is when it was told to wipe itself, back when it booted after that.
	told, back time.Time
	graceful   bool
}

// checkDestroyed holds the machines' own logs against what destroying a cluster means.
func (c *crashes) checkDestroyed(t *testing.T, machines []v1alpha1.TalosMachine) {
	t.Helper()
	var ends []end
	for i := range machines {
		ends = append(ends, c.endOf(t, &machines[i]))
	}
	slices.SortFunc(ends, func(a, b end) int { return a.told.Compare(b.told) })
	var line []string
	var planeBack time.Time
	for i, one := range ends {
		line = append(line, one.hostname)
		switch {
		case !one.controlPlane && !planeBack.IsZero():
			t.Errorf("worker %s was told to wipe itself after a control plane was", one.hostname)
		case one.controlPlane && one.told.Before(planeBack):
			t.Errorf("control plane %s was told to wipe itself at %s, and the one before was wiped at %s", one.hostname, one.told, planeBack)
		case one.controlPlane:
			planeBack = one.back
		}
		if last := i == len(ends)-1; last && one.graceful {
			t.Errorf("the last control plane, %s, was told to leave an etcd that ends with it", one.hostname)
		}
	}
	t.Logf("%5.1fs wiped in this order: %v", time.Since(c.begin).Seconds(), line)
}

func (c *crashes) endOf(t *testing.T, m *v1alpha1.TalosMachine) end {
	t.Helper()
	data, err := c.stack.Machines().Do(t.Context(), "deeds", c.hardware(t, m.Name).Name)
	if err != nil {
		t.Fatal(err)
	}
	var deeds []node.Deed
	if err := json.Unmarshal(data, &deeds); err != nil {
		t.Fatal(err)
	}
	out, told := end{name: m.Name, hostname: m.Spec.Hostname, controlPlane: m.Spec.Role == v1alpha1.RoleControlPlane}, 0
	for _, deed := range deeds {
		switch {
		case deed.What == node.DeedToldReset:
			told++
			out.told, out.graceful = deed.Time, deed.Graceful
			if len(deed.Disks) > 0 {
				t.Errorf("machine %s was told to wipe the disks %q, which nobody named", m.Name, deed.Disks)
			}
		case deed.What == node.DeedBoot && told > 0 && out.back.IsZero():
			out.back = deed.Time
		}
	}
	if told != 1 {
		t.Errorf("machine %s (%s) was told to wipe itself %d times: %+v", m.Name, m.Spec.Hostname, told, deeds)
	}
	return out
}
