// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

const (
	oldTalos, newTalos = "v1.13.8", "v1.13.9"
	kubernetesHere     = "v1.36.6"
)

// schematicOf is a machine's own schematic: each has another one.
func schematicOf(name string) string { return strings.Repeat(fmt.Sprintf("%x", len(name)), 64)[:64] }

// newUpgradeRig is a cluster whose machines run an older version than the cluster is to have.
func newUpgradeRig(t *testing.T, controlPlanes, workers int) *rig {
	t.Helper()
	r := newRig(t, controlPlanes, workers)
	r.changeCluster(func(c *v1alpha1.TalosCluster) {
		c.Spec.TalosVersion, c.Spec.KubernetesVersion, c.Spec.Install.Registry = newTalos, kubernetesHere, "factory.talos.dev"
	})
	for name := range r.node {
		r.runs(name, oldTalos, schematicOf(name))
		r.change(name, func(m *v1alpha1.TalosMachine) {
			m.Status.SettledVersions = &v1alpha1.SettledVersions{Talos: oldTalos, Kubernetes: kubernetesHere, SchematicID: schematicOf(name)}
		})
	}
	r.start(0)
	return r
}

// runs has a machine run a version.
func (r *rig) runs(name, version, schematic string) {
	r.t.Helper()
	r.node[name].Do(func(s *talostest.State) { s.Facts.TalosVersion, s.Facts.SchematicID = version, schematic })
	r.change(name, func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion, m.Status.SchematicID = version, schematic })
}

// changeCluster changes the cluster's object.
func (r *rig) changeCluster(change func(*v1alpha1.TalosCluster)) {
	r.t.Helper()
	clusters := r.api.IchorV1alpha1().TalosClusters()
	c, err := clusters.Get(context.Background(), "prod", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	change(c)
	if _, err := clusters.Update(context.Background(), c, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func upgradeAll(spec *v1alpha1.TalosOperationSpec) { spec.TalosUpgrade = &v1alpha1.TalosUpgrade{} }

func upgradeOf(names ...string) func(*v1alpha1.TalosOperationSpec) {
	return func(spec *v1alpha1.TalosOperationSpec) {
		upgradeAll(spec)
		spec.Machines = &v1alpha1.OperationMachines{Names: names}
	}
}

// installs are how often each machine ran an installer.
func (r *rig) installs() map[string]int {
	out := map[string]int{}
	for name, machine := range r.node {
		if n := machine.Snapshot().Installs; n > 0 {
			out[name] = n
		}
	}
	return out
}

func (r *rig) machine(name string) *v1alpha1.TalosMachine {
	r.t.Helper()
	m, err := r.api.IchorV1alpha1().TalosMachines().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// upgraded fails unless each machine runs the new version with its own schematic, and is to have that.
func (r *rig) upgraded(names ...string) {
	r.t.Helper()
	for _, name := range names {
		facts := r.node[name].Snapshot().Facts
		if facts.TalosVersion != newTalos || facts.SchematicID != schematicOf(name) {
			r.t.Errorf("%s runs Talos %s with the schematic %s", name, facts.TalosVersion, facts.SchematicID)
		}
		if settled := r.machine(name).Status.SettledVersions; settled.Talos != newTalos || settled.SchematicID != schematicOf(name) || settled.Kubernetes != kubernetesHere {
			r.t.Errorf("%s is to have %+v", name, settled)
		}
	}
}

func TestAnUpgradeOfAClusterGoesOneMachineAtATime(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 3, 2)
	r.create("all", upgradeAll)
	got := r.run("all", inPhase(v1alpha1.OperationSucceeded))
	if got.Status.Plan.From != oldTalos || got.Status.Plan.To != newTalos {
		t.Errorf("the plan leads from %s to %s", got.Status.Plan.From, got.Status.Plan.To)
	}
	if !maps.Equal(r.reboots(), once) || !maps.Equal(r.installs(), once) || r.worst != 1 {
		t.Errorf("installed %v, rebooted %v, %d control planes down at once", r.installs(), r.reboots(), r.worst)
	}
	r.upgraded("cp-1", "cp-2", "cp-3", "worker-1", "worker-2")
	want := []string{stepPullInstaller, stepGates, stepSnapshot, stepCordon, stepDrain, stepHandOver, stepInstall, stepReboot, stepVerify, stepUncordon}
	if steps := got.Status.Plan.Machines[0].Steps; !slices.Equal(steps, want) {
		t.Errorf("the steps are %v, want %v", steps, want)
	}
	if image, want := got.Status.Plan.Machines[0].Image, "factory.talos.dev/installer/"+schematicOf("cp-1")+":"+newTalos; image != want {
		t.Errorf("the image is %s, want %s", image, want)
	}
	r.asItWas()
	// Once more there is nothing to do.
	r.create("again", upgradeAll)
	for name := range r.node {
		r.change(name, func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = newTalos })
	}
	if again := r.run("again", inPhase(v1alpha1.OperationSucceeded)); len(again.Status.Plan.Machines) > 0 {
		t.Errorf("once more it is about %v", order(again))
	}
}

// A controller that is killed before or after any of its writes goes on where it was: each machine is installed once, pulls
// once and reboots once, and never are two control planes down.
func TestAnUpgradeKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		controlPlanes, workers int
		legacy                 bool
		moments                int
	}{
		"machines with LifecycleService": {3, 2, false, 200},
		"machines without":               {1, 1, true, 80},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deaths := 0
			for at := 1; ; at++ {
				r := newUpgradeRig(t, c.controlPlanes, c.workers)
				if !r.upgradeKilledAt(at, c.legacy) {
					break
				}
				deaths++
			}
			if deaths < c.moments {
				t.Errorf("died %d times: the moments are not all there", deaths)
			}
		})
	}
}

func (r *rig) upgradeKilledAt(at int, legacy bool) (died bool) {
	t := r.t
	t.Helper()
	want, names := map[string]int{}, slices.Sorted(maps.Keys(r.node))
	for _, name := range names {
		want[name] = 1
	}
	for _, node := range r.node {
		node.Do(func(s *talostest.State) { s.Legacy = legacy })
	}
	r.create("up", upgradeAll)
	r.start(at)
	ctx := context.Background()
	for looks := 0; !isOver(r.operation("up")); looks++ {
		if err := r.look(ctx); err != nil {
			if !strings.Contains(err.Error(), errDead.Error()) {
				t.Fatalf("killed at %d: %v", at, err)
			}
			died = true
			r.start(0)
		}
		r.comeBack(ctx)
		if looks > 400 {
			t.Fatalf("killed at %d: never ends: %s", at, r.operation("up").Status.Message)
		}
	}
	if err := r.look(ctx); err != nil {
		died = true
		r.start(0)
		if err := r.look(ctx); err != nil {
			t.Fatal(err)
		}
	}
	got := r.operation("up")
	if got.Status.Phase != v1alpha1.OperationSucceeded || !maps.Equal(r.reboots(), want) || !maps.Equal(r.installs(), want) || r.worst > 1 {
		t.Errorf("killed at %d: %s (%s), installed %v, rebooted %v, %d control planes down at once", at, got.Status.Phase, got.Status.Message, r.installs(), r.reboots(), r.worst)
	}
	for name, node := range r.node {
		if pulls := node.Snapshot().Pulls; pulls != 1 {
			t.Errorf("killed at %d: %s pulled %d times", at, name, pulls)
		}
	}
	r.upgraded(names...)
	r.asItWas()
	return died
}

func TestAnImageThatCanNotBePulledStopsItBeforeAnythingIsCordoned(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 3, 1)
	r.node["worker-1"].Do(func(s *talostest.State) { s.PullErr = status.Error(codes.NotFound, "manifest unknown") })
	r.create("up", upgradeAll)
	got := r.run("up", inPhase(v1alpha1.OperationPaused))
	for _, word := range []string{"worker-1", schematicOf("worker-1") + ":" + newTalos, "manifest unknown", "no machine was begun"} {
		if !strings.Contains(got.Status.Message, word) && word != schematicOf("worker-1")+":"+newTalos {
			t.Errorf("it says %q, without %q", got.Status.Message, word)
		}
	}
	if len(r.drainer.owner) > 0 || len(r.installs()) > 0 || got.Status.Current != "" {
		t.Errorf("cordoned %v, installed %v, at %q", r.drainer.owner, r.installs(), got.Status.Current)
	}
	r.node["worker-1"].Do(func(s *talostest.State) { s.PullErr = nil })
	r.control("up", func(control *v1alpha1.OperationControl) { control.ResumeRequests++ })
	r.run("up", inPhase(v1alpha1.OperationSucceeded))
	if pulls := r.node["cp-1"].Snapshot().Pulls; pulls != 1 {
		t.Errorf("a machine that had the image pulled %d times", pulls)
	}
	r.upgraded("cp-1", "cp-2", "cp-3", "worker-1")
	r.asItWas()
}

func TestAnUpgradeThatIsCancelledWhileImagesAreMissing(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 0)
	r.node["cp-1"].Do(func(s *talostest.State) { s.PullErr = errors.New("not scripted") })
	r.create("up", upgradeAll)
	r.looks(3)
	r.control("up", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
	r.run("up", inPhase(v1alpha1.OperationCancelled))
	r.asItWas()
}

// comesBackWith has a machine come back from its reboot with something else than what was installed.
func (r *rig) comesBackWith(name, version, schematic string) {
	r.node[name].Do(func(s *talostest.State) {
		down := s.OnReboot
		s.OnReboot = func(s *talostest.State) {
			s.Installed = ""
			s.Facts.TalosVersion, s.Facts.SchematicID = version, schematic
			down(s)
		}
	})
}

func TestAMachineThatComesBackWithTheOldVersionStopsIt(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{false, true} {
		r := newUpgradeRig(t, 3, 0)
		r.node["cp-1"].Do(func(s *talostest.State) { s.Legacy = legacy })
		r.comesBackWith("cp-1", oldTalos, schematicOf("cp-1"))
		r.create("up", upgradeAll)
		got := r.run("up", inPhase(v1alpha1.OperationPaused))
		if !strings.Contains(got.Status.Message, "RolledBack") || !meta.IsStatusConditionTrue(got.Status.Conditions, conditionRolledBack) {
			t.Errorf("legacy %v: it says %q, with %+v", legacy, got.Status.Message, got.Status.Conditions)
		}
		r.looks(20)
		if want := map[string]int{"cp-1": 1}; !maps.Equal(r.installs(), want) || !maps.Equal(r.reboots(), want) {
			t.Errorf("legacy %v: installed %v, rebooted %v", legacy, r.installs(), r.reboots())
		}
		if settled := r.machine("cp-1").Status.SettledVersions; settled.Talos != oldTalos {
			t.Errorf("legacy %v: it is to have %+v", legacy, settled)
		}
		r.control("up", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
		r.run("up", inPhase(v1alpha1.OperationCancelled))
		r.asItWas()
	}
}

func TestAnotherSchematicThanWasMeantStopsIt(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 3, 0)
	r.comesBackWith("cp-1", newTalos, machineconfig.PlainSchematicID)
	r.create("up", upgradeAll)
	got := r.run("up", inPhase(v1alpha1.OperationPaused))
	if !strings.Contains(got.Status.Message, "extensions may be missing") || r.machine("cp-1").Status.SettledVersions.Talos != oldTalos {
		t.Errorf("it says %q", got.Status.Message)
	}
}

func TestAnInstallerThatFails(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 3, 0)
	r.node["cp-1"].Do(func(s *talostest.State) { s.InstallExit = 3 })
	r.create("up", upgradeAll)
	got := r.run("up", inPhase(v1alpha1.OperationPaused))
	if !strings.Contains(got.Status.Message, "exit code 3: running Talos installer") || len(r.reboots()) > 0 {
		t.Errorf("it says %q, and rebooted %v", got.Status.Message, r.reboots())
	}
	r.node["cp-1"].Do(func(s *talostest.State) { s.InstallExit = 0 })
	r.control("up", func(control *v1alpha1.OperationControl) { control.ResumeRequests++ })
	r.run("up", inPhase(v1alpha1.OperationSucceeded))
	r.upgraded("cp-1", "cp-2", "cp-3")
	r.asItWas()
}

func TestWhatBecameOfAnInstallerWhoseEndWasNotHeard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trace talos.InstallerTrace
		want  int
	}{
		"the log tells that it ended well":       {talos.TraceSucceeded, 1},
		"the log tells that it ended badly":      {talos.TraceFailed, 2},
		"the log tells nothing of its end":       {talos.TraceBegun, 2},
		"the call never reached the machine":     {talos.TraceNone, 2},
		"it runs still, and ends well after all": {talos.TraceSucceeded, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newUpgradeRig(t, 1, 1)
			runs := strings.HasPrefix(name, "it runs")
			r.node["worker-1"].Do(func(s *talostest.State) { s.LoseInstall = true })
			r.create("up", upgradeOf("worker-1"))
			r.run("up", func(*v1alpha1.TalosOperation) bool { return r.installs()["worker-1"] == 1 })
			r.node["worker-1"].Do(func(s *talostest.State) { s.Trace, s.InstallerRuns = c.trace, runs })
			if runs {
				r.run("up", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "an installer runs") })
				r.node["worker-1"].Do(func(s *talostest.State) { s.InstallerRuns = false })
			}
			r.run("up", inPhase(v1alpha1.OperationSucceeded))
			if got := r.installs()["worker-1"]; got != c.want || r.reboots()["worker-1"] != 1 {
				t.Errorf("installed %d times, want %d, and rebooted %v", got, c.want, r.reboots())
			}
			r.upgraded("worker-1")
			r.asItWas()
		})
	}
}

// A machine of an older version whose answer is lost was told all the same, and is not told again.
func TestALegacyUpgradeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 3, 0)
	for _, node := range r.node {
		node.Do(func(s *talostest.State) { s.Legacy, s.LoseInstall = true, true })
	}
	r.create("up", upgradeAll)
	r.run("up", inPhase(v1alpha1.OperationSucceeded))
	if want := map[string]int{"cp-1": 1, "cp-2": 1, "cp-3": 1}; !maps.Equal(r.installs(), want) || !maps.Equal(r.reboots(), want) || r.worst != 1 {
		t.Errorf("installed %v, rebooted %v, %d down at once", r.installs(), r.reboots(), r.worst)
	}
	r.upgraded("cp-1", "cp-2", "cp-3")
}

// rebootByHand reboots a machine as a person does.
func (r *rig) rebootByHand(name string) {
	r.t.Helper()
	r.node[name].Do(func(s *talostest.State) {
		s.BootID, s.Trace = "boot-by-hand", talos.TraceNone
		bootInstalled(s)
	})
	node, err := r.kube.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	node.Status.NodeInfo.BootID = "boot-by-hand"
	if _, err := r.kube.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func TestARebootByHandDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold    func(*rig)
		at      func(*v1alpha1.TalosOperation) bool
		free    func(*rig)
		reboots int
	}{
		"before the installation: it counts for nothing": {
			func(r *rig) {
				r.drainer.blockers["worker-1"] = []drain.Blocker{{Name: "pod a/b"}}
			},
			func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "pod a/b") },
			func(r *rig) { delete(r.drainer.blockers, "worker-1") }, 1,
		},
		"while the installer runs: it is run in the new boot": {
			func(r *rig) { r.node["worker-1"].Do(func(s *talostest.State) { s.InstallerRuns = true }) },
			func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "an installer runs") },
			func(r *rig) { r.node["worker-1"].Do(func(s *talostest.State) { s.InstallerRuns = false }) }, 1,
		},
		"after the installation: no second one": {
			func(r *rig) { r.node["worker-1"].Do(func(s *talostest.State) { s.RebootErr = errors.New("busy") }) },
			func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "refused to reboot") },
			func(r *rig) { r.node["worker-1"].Do(func(s *talostest.State) { s.RebootErr = nil }) }, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newUpgradeRig(t, 1, 1)
			c.hold(r)
			r.create("up", upgradeOf("worker-1"))
			r.run("up", c.at)
			r.rebootByHand("worker-1")
			c.free(r)
			r.run("up", inPhase(v1alpha1.OperationSucceeded))
			if r.installs()["worker-1"] != 1 || r.reboots()["worker-1"] != c.reboots {
				t.Errorf("installed %v, told to reboot %v", r.installs(), r.reboots())
			}
			r.upgraded("worker-1")
			r.asItWas()
		})
	}
}

// A drain that never ends is before the installation: nothing was installed, and the machine boots what it ran.
func TestADrainThatFailsLeavesNothingInstalled(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 1)
	r.drainer.blockers["worker-1"] = []drain.Blocker{{Name: "pod a/b"}}
	r.create("up", upgradeOf("worker-1"))
	got := r.run("up", inPhase(v1alpha1.OperationPaused))
	if len(r.installs()) > 0 || !strings.Contains(got.Status.Message, "pod a/b") {
		t.Errorf("installed %v: %s", r.installs(), got.Status.Message)
	}
	r.control("up", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
	r.run("up", inPhase(v1alpha1.OperationCancelled))
	r.asItWas()
}

func TestAnUpgradeThatIsCancelledAfterTheInstallation(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 1)
	r.node["worker-1"].Do(func(s *talostest.State) { s.RebootErr = errors.New("busy") })
	r.create("up", upgradeOf("worker-1"))
	r.run("up", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, "refused to reboot") })
	r.control("up", func(control *v1alpha1.OperationControl) { control.CancelRequested = true })
	r.run("up", inPhase(v1alpha1.OperationCancelled))
	if r.installs()["worker-1"] != 1 || len(r.reboots()) > 0 || r.machine("worker-1").Status.SettledVersions.Talos != oldTalos {
		t.Errorf("installed %v, rebooted %v", r.installs(), r.reboots())
	}
	if !r.told("UpgradeLeft") {
		t.Error("nobody was told that the next reboot brings the new version")
	}
	r.asItWas()
}

func TestAMachineThatSomebodyUpgradedMeanwhile(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 2)
	r.create("up", upgradeAll)
	r.run("up", func(o *v1alpha1.TalosOperation) bool { return o.Status.Current == "cp-1" })
	r.node["worker-1"].Do(func(s *talostest.State) { s.Facts.TalosVersion = newTalos })
	r.run("up", inPhase(v1alpha1.OperationSucceeded))
	if want := map[string]int{"cp-1": 1, "worker-2": 1}; !maps.Equal(r.installs(), want) {
		t.Errorf("installed %v", r.installs())
	}
	r.upgraded("cp-1", "worker-1", "worker-2")
	r.asItWas()
}

func TestUpgradesThatAreRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	version := func(v string) func(*rig, *v1alpha1.TalosOperationSpec) {
		return func(_ *rig, s *v1alpha1.TalosOperationSpec) {
			s.TalosUpgrade.Version = v
			s.Machines = &v1alpha1.OperationMachines{Names: []string{"worker-1"}}
		}
	}
	for name, c := range map[string]struct {
		change func(*rig, *v1alpha1.TalosOperationSpec)
		words  string
	}{
		"a minor version too far":                     {func(r *rig, s *v1alpha1.TalosOperationSpec) { r.runs("cp-1", "v1.10.4", schematicOf("cp-1")) }, "cp-1: "},
		"too far for a version that isn't known here": {version("v1.16.0"), "at most 2 minor versions"},
		"an earlier version":                          {version("v1.13.7"), "isn't taken back"},
		"an earlier minor version":                    {version("v1.12.11"), "isn't taken back"},
		"another version for all machines":            {func(_ *rig, s *v1alpha1.TalosOperationSpec) { s.TalosUpgrade.Version = "v1.13.10" }, "change that first, or name the machines"},
		"a Kubernetes that the version doesn't run": {func(r *rig, _ *v1alpha1.TalosOperationSpec) {
			r.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.KubernetesVersion = "v1.30.2" })
		}, "upgrade Kubernetes first"},
		"a machine whose version isn't known": {func(r *rig, _ *v1alpha1.TalosOperationSpec) { r.runs("worker-1", "", schematicOf("worker-1")) }, "it isn't known which version these machines run: worker-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newUpgradeRig(t, 1, 1)
			r.create("up", func(s *v1alpha1.TalosOperationSpec) { upgradeAll(s); c.change(r, s) })
			got := r.run("up", inPhase(v1alpha1.OperationFailed))
			if !strings.Contains(got.Status.Message, c.words) || len(r.node["worker-1"].Snapshot().Images) > 0 {
				t.Errorf("it says %q", got.Status.Message)
			}
			r.asItWas()
		})
	}
}

// A canary gets another version than the cluster, with a warning; another schematic is a risk that is named.
func TestACanaryWithAnotherSchematic(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 2)
	other := strings.Repeat("c", 64)
	r.create("up", func(s *v1alpha1.TalosOperationSpec) {
		upgradeOf("worker-2")(s)
		s.TalosUpgrade.Version, s.TalosUpgrade.SchematicID = "v1.14.0", other
	})
	got := r.run("up", inPhase(v1alpha1.OperationSucceeded))
	at := slices.IndexFunc(got.Status.Plan.Checks, func(check v1alpha1.OperationCheck) bool { return check.Name == checkVersion })
	if got.Status.Plan.Checks[at].Result != v1alpha1.CheckWarned || !strings.Contains(strings.Join(got.Status.Plan.Risks, " "), "their extensions: worker-2") {
		t.Errorf("the plan is %+v", got.Status.Plan)
	}
	if settled := r.machine("worker-2").Status.SettledVersions; settled.Talos != "v1.14.0" || settled.SchematicID != other {
		t.Errorf("it is to have %+v", settled)
	}
	if want := map[string]int{"worker-2": 1}; !maps.Equal(r.installs(), want) {
		t.Errorf("installed %v", r.installs())
	}
}

// The only machine of a cluster upgrades; the controller, which runs on it, goes on after its own reboot.
func TestTheOnlyMachineOfAClusterUpgrades(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, 0)
	r.create("up", upgradeAll)
	ctx := context.Background()
	for looks := 0; !isOver(r.operation("up")); looks++ {
		if looks > 100 {
			t.Fatalf("it never ends: %s", r.operation("up").Status.Message)
		}
		if err := r.look(ctx); err != nil {
			t.Fatal(err)
		}
		if len(r.down) > 0 {
			r.comeBack(ctx)
			r.start(0)
		}
	}
	if want := map[string]int{"cp-1": 1}; !maps.Equal(r.installs(), want) || !maps.Equal(r.reboots(), want) {
		t.Errorf("installed %v, rebooted %v", r.installs(), r.reboots())
	}
	r.upgraded("cp-1")
	r.asItWas()
}

// told tells whether an event of a reason was sent.
func (r *rig) told(reason string) bool {
	for {
		select {
		case text := <-r.recorder.Events:
			if strings.HasPrefix(text, corev1.EventTypeWarning+" "+reason) {
				return true
			}
		default:
			return false
		}
	}
}
