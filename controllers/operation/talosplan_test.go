// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"strings"
	"testing"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// An operation may wait for days between its plan and a machine's turn. What became later meanwhile isn't taken back.
func TestAnUpgradeThatWasPlannedLongAgoTakesNothingBack(t *testing.T) {
	t.Parallel()
	other := strings.Repeat("c", 64)
	for name, c := range map[string]struct {
		hold, change func(*rig)
		at           string
		words        string
	}{
		"another operation brought a later version": {
			func(r *rig) {
				r.create("a-later", func(s *v1alpha1.TalosOperationSpec) {
					upgradeOf("worker-1")(s)
					s.TalosUpgrade.Version = "v1.14.0"
				})
			}, func(*rig) {}, "waits for operation a-later", "isn't taken back to an earlier version",
		},
		"another operation brought another schematic": {
			func(r *rig) {
				r.create("a-later", func(s *v1alpha1.TalosOperationSpec) {
					upgradeOf("worker-1")(s)
					s.TalosUpgrade.SchematicID = other
				})
			}, func(*rig) {}, "waits for operation a-later", "by now it is to keep cccccccccccc",
		},
		"a person brought a later version right before the installer": {
			func(r *rig) { r.node["worker-1"].Do(func(s *talostest.State) { s.InstallerRuns = true }) },
			func(r *rig) {
				r.node["worker-1"].Do(func(s *talostest.State) { s.Facts.TalosVersion, s.InstallerRuns = "v1.14.0", false })
			}, "an installer runs", "isn't taken back to an earlier version",
		},
		"and a machine that upgrades itself": {
			func(r *rig) {
				r.node["worker-1"].Do(func(s *talostest.State) { s.Legacy = true })
				r.drainer.blockers["worker-1"] = []drain.Blocker{{Name: "pod a/b"}}
			},
			func(r *rig) {
				r.node["worker-1"].Do(func(s *talostest.State) { s.Facts.TalosVersion = "v1.14.0" })
				delete(r.drainer.blockers, "worker-1")
			}, "pod a/b", "isn't taken back to an earlier version",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newUpgradeRig(t, 1, 1)
			c.hold(r)
			r.create("b-planned", upgradeOf("worker-1"))
			r.run("b-planned", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, c.at) })
			c.change(r)
			got := r.run("b-planned", inPhase(v1alpha1.OperationPaused))
			if !strings.Contains(got.Status.Message, c.words) {
				t.Errorf("it says %q", got.Status.Message)
			}
			if image := "factory.talos.dev/installer/" + schematicOf("worker-1") + ":" + newTalos; r.node["worker-1"].Snapshot().Installed == image {
				t.Errorf("%s was installed", image)
			}
			r.control("b-planned", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
			r.run("b-planned", inPhase(v1alpha1.OperationCancelled))
			r.asItWas()
		})
	}
}

// An operation is made in one go with what its cluster is to have, which the cache doesn't show yet.
func TestAnUpgradeIsPlannedForWhatTheClusterIsToHaveNow(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 1)
	r.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = oldTalos })
	r.sync()
	r.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = newTalos })
	r.create("up", upgradeAll)
	if _, err := r.controller.Reconcile(t.Context(), "up"); err != nil {
		t.Fatal(err)
	}
	if got := r.operation("up").Status; got.Plan.To != newTalos || len(got.Plan.Machines) != 2 {
		t.Errorf("it is %s (%s), planned to %s", got.Phase, got.Message, got.Plan.To)
	}
	r.run("up", inPhase(v1alpha1.OperationSucceeded))
	r.upgraded("cp-1", "worker-1")
}

// Where only the schematic is another one, the version doesn't tell what a machine booted.
func TestARebootByHandBeforeAnotherSchematicIsInstalled(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 1)
	other := strings.Repeat("c", 64)
	r.runs("worker-1", newTalos, schematicOf("worker-1"))
	r.node["worker-1"].Do(func(s *talostest.State) { s.InstallerRuns = true })
	r.create("up", func(s *v1alpha1.TalosOperationSpec) {
		upgradeOf("worker-1")(s)
		s.TalosUpgrade.SchematicID = other
	})
	r.run("up", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "an installer runs") })
	r.rebootByHand("worker-1")
	r.node["worker-1"].Do(func(s *talostest.State) { s.InstallerRuns = false })
	r.run("up", inPhase(v1alpha1.OperationSucceeded))
	if facts := r.node["worker-1"].Snapshot().Facts; facts.SchematicID != other || r.installs()["worker-1"] != 1 || r.reboots()["worker-1"] != 1 {
		t.Errorf("it has the schematic %s, after %v installations and %v reboots", facts.SchematicID, r.installs(), r.reboots())
	}
	r.asItWas()
}
