// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
)

const (
	// livePatch is a patch that machines take without a reboot.
	livePatch = "tuning"
	// liveFor bounds its way to the machines.
	liveFor = 3 * time.Minute
)

// reconfigured brings a changed patch to running machines, two control planes and a worker, while the controller dies at
// each of its writes. All of them get it, once but for an answer that nobody was left to hear; the others get nothing.
func (c *crashes) reconfigured(t *testing.T, p plan) {
	t.Helper()
	before, had := len(c.kills(t, asController)), map[string]int{}
	var targets []string
	for _, m := range c.machines(t) {
		had[m.Name] = len(c.sentTo(t, m.Name))
		if m.Spec.Hostname == "cp-2" || m.Spec.Hostname == "cp-3" || m.Spec.Hostname == "worker-2" {
			targets = append(targets, m.Name)
		}
	}
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: livePatch}}
	patch.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, MachineNames: targets}
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(`{"sysctls":{"vm.swappiness":"1"}}`)}
	if _, err := c.ichor.IchorV1alpha1().TalosConfigPatches().Create(t.Context(), patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, liveFor, func() error { return c.arrived(t.Context(), len(targets)) })
	c.settle(t)
	c.ready(t, len(joining)+1)
	for _, m := range c.machines(t) {
		sent := c.sentTo(t, m.Name)[had[m.Name]:]
		if !slices.Contains(targets, m.Name) {
			if len(sent) > 0 {
				t.Errorf("machine %s was sent %d configurations, and the patch isn't for it: %+v", m.Name, len(sent), sent)
			}
			continue
		}
		config := m.Status.Config
		if len(sent) == 0 || len(sent) > 2 || config == nil || config.DriftCount > 0 || config.RunningHash != config.AppliedHash {
			t.Errorf("machine %s was sent %d configurations, want one, or two if an answer was lost; its state is %+v", m.Name, len(sent), config)
		}
		for _, apply := range sent {
			if config == nil || apply.SHA256 != config.AppliedHash || apply.Maintenance || !apply.Accepted {
				t.Errorf("machine %s was sent another configuration than it is to have, or not while it ran: %+v", m.Name, apply)
			}
		}
	}
	if p.calm {
		return
	}
	kills := c.kills(t, asController)[before:]
	for _, act := range []string{"later ApplyConfiguration", "update talosmachines/status", "update talosconfigpatches/status"} {
		if !slices.ContainsFunc(kills, func(key string) bool { return strings.Contains(key, " "+act) }) {
			t.Errorf("the controller was never killed at %q while it brought a changed patch: %q", act, kills)
		}
	}
	t.Logf("%5.1fs a changed patch reached %d machines over %d kills", time.Since(c.begin).Seconds(), len(targets), len(kills))
}

// arrived tells why the patch isn't on all its machines yet.
func (c *crashes) arrived(ctx context.Context, machines int) error {
	patch, err := c.ichor.IchorV1alpha1().TalosConfigPatches().Get(ctx, livePatch, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if int(patch.Status.Machines.Applied) != machines {
		return fmt.Errorf("the patch is on %+v of %d machines: %+v", patch.Status.Machines, machines, patch.Status.Conditions)
	}
	return nil
}

// sentTo are the configurations that a machine was sent, by its own log.
func (c *crashes) sentTo(t *testing.T, name string) []node.Apply {
	t.Helper()
	applies, err := c.stack.Machines().Applies(t.Context(), c.hardware(t, name).Name)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(applies, func(apply node.Apply) bool { return apply.DryRun })
}
