// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/kubernetesupgrade"
	"maesh.dev/ichor/pkg/talos/talostest"
)

const (
	oldVersion = "v1.36.4"
	newVersion = "v1.36.6"
)

// release is a rig whose machines run a version of Kubernetes, as static pods and Nodes show it, and stands for the
// controller of machines: what a machine is to have is applied between two looks.
type release struct {
	*rig
	// moves are what became of machines, in order.
	moves []string
	// stuck machines get nothing.
	stuck map[string]bool
}

func newRelease(t *testing.T, controlPlanes, workers int) *release {
	t.Helper()
	v := &release{rig: newRig(t, controlPlanes, workers), stuck: map[string]bool{}}
	ctx := context.Background()
	cluster, err := v.api.IchorV1alpha1().TalosClusters().Get(ctx, "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Spec.ControlPlane = v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.99"}}
	v1alpha1.SetDefaults_TalosClusterSpec(&cluster.Spec)
	cluster.Spec.KubernetesVersion = newVersion
	if _, err := v.api.IchorV1alpha1().TalosClusters().Update(ctx, cluster, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name := range v.node {
		v.change(name, func(m *v1alpha1.TalosMachine) {
			m.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}
			m.Status.Inventory = &v1alpha1.MachineInventory{Disks: []v1alpha1.DiskInventory{{Device: "/dev/sda", Serial: "S1"}}}
			m.Status.TalosVersion = "v1.14.5"
			m.Status.SettledVersions = &v1alpha1.SettledVersions{Talos: "v1.14.5", Kubernetes: oldVersion, SchematicID: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"}
		})
		v.runs(name, kubernetesupgrade.Kubelet, oldVersion)
		if strings.HasPrefix(name, "cp") {
			for _, component := range kubernetesupgrade.ControlPlane {
				v.runs(name, component, oldVersion)
			}
		}
	}
	return v
}

// runs has a component of a machine run a version.
func (v *release) runs(machine string, component kubernetesupgrade.Component, version string) {
	v.t.Helper()
	ctx := context.Background()
	if component == kubernetesupgrade.Kubelet {
		node, err := v.kube.CoreV1().Nodes().Get(ctx, machine, metav1.GetOptions{})
		if err != nil {
			v.t.Fatal(err)
		}
		node.Status.NodeInfo.KubeletVersion = version
		if _, err := v.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			v.t.Fatal(err)
		}
		return
	}
	pods := v.kube.CoreV1().Pods("kube-system")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%s", component, machine), Namespace: "kube-system",
		Labels: map[string]string{"k8s-app": string(component)}, Annotations: map[string]string{"talos.dev/config-version": version},
	}}
	pod.Spec.NodeName, pod.Spec.Containers = machine, []corev1.Container{{Image: "registry.k8s.io/" + string(component) + ":" + version}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := pods.Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			v.t.Fatal(err)
		}
	}
}

// version is what a component of a machine runs.
func (v *release) version(machine string, component kubernetesupgrade.Component) string {
	v.t.Helper()
	ctx := context.Background()
	nodes, err := v.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	pods, err := v.kube.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	m := &v1alpha1.TalosMachine{}
	m.Status.NodeName = machine
	return runningOn(m, nodes.Items, pods.Items)[component]
}

// apply brings every machine what it is to have.
func (v *release) apply() {
	v.t.Helper()
	list, err := v.api.IchorV1alpha1().TalosMachines().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		for _, component := range append(slices.Clone(kubernetesupgrade.ControlPlane), kubernetesupgrade.Kubelet) {
			if is := v.version(m.Name, component); is != "" && is != versionOf(m.Status.SettledVersions, component) && !v.stuck[m.Name] {
				v.runs(m.Name, component, versionOf(m.Status.SettledVersions, component))
				v.moves = append(v.moves, fmt.Sprintf("%s %s", m.Name, component))
			}
		}
	}
}

// until looks until the operation is as wanted.
func (v *release) until(name string, wanted func(*v1alpha1.TalosOperation) bool) *v1alpha1.TalosOperation {
	v.t.Helper()
	for range 400 {
		if err := v.look(context.Background()); err != nil {
			v.t.Fatal(err)
		}
		if operation := v.operation(name); wanted(operation) {
			return operation
		}
		v.apply()
	}
	status := v.operation(name).Status
	v.t.Fatalf("operation %s doesn't get there: it is %s: %s", name, status.Phase, status.Message)
	return nil
}

func toNew(spec *v1alpha1.TalosOperationSpec) { spec.KubernetesUpgrade = &v1alpha1.KubernetesUpgrade{} }

// inOrderOf are the moves of an upgrade of three control planes and a worker.
var inOrderOf = []string{
	"cp-1 kube-apiserver", "cp-2 kube-apiserver", "cp-3 kube-apiserver",
	"cp-1 kube-controller-manager", "cp-2 kube-controller-manager", "cp-3 kube-controller-manager",
	"cp-1 kube-scheduler", "cp-2 kube-scheduler", "cp-3 kube-scheduler",
	"cp-1 kubelet", "cp-2 kubelet", "cp-3 kubelet", "worker-1 kubelet",
}

func TestKubernetesIsUpgradedComponentByComponent(t *testing.T) {
	t.Parallel()
	v := newRelease(t, 3, 1)
	v.drainer.owner["worker-1"] = somebody
	v.create("up", toNew)
	got := v.until("up", inPhase(v1alpha1.OperationSucceeded))
	if !slices.Equal(v.moves, inOrderOf) {
		t.Errorf("moved %v, want %v", v.moves, inOrderOf)
	}
	if plan := got.Status.Plan; plan.From != oldVersion || plan.To != newVersion || !slices.Equal(order(got), []string{"cp-1", "cp-2", "cp-3", "worker-1"}) {
		t.Errorf("planned %s to %s for %v", plan.From, plan.To, order(got))
	}
	if !slices.Equal(v.drainer.drained, []string{"cp-1", "cp-2", "cp-3", "worker-1"}) {
		t.Errorf("drained %v", v.drainer.drained)
	}
	if len(v.reboots()) > 0 {
		t.Errorf("rebooted %v", v.reboots())
	}
	list, err := v.api.IchorV1alpha1().TalosMachines().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		if !hasAll(m.Status.SettledVersions, newVersion) {
			t.Errorf("%s is to have %+v", m.Name, *m.Status.SettledVersions)
		}
	}
	v.asItWas()
	v.create("again", toNew)
	if again := v.until("again", func(o *v1alpha1.TalosOperation) bool { return isOver(o) }); again.Status.Phase != v1alpha1.OperationSucceeded || again.Status.Total != 0 {
		t.Errorf("once more: %s, %d machines: %s", again.Status.Phase, again.Status.Total, again.Status.Message)
	}
}

func TestAKubernetesUpgradeOfTwoControlPlanesGoesOnAsEtcdIsNotMissed(t *testing.T) {
	t.Parallel()
	v := newRelease(t, 2, 0)
	v.create("up", toNew)
	got := v.until("up", inPhase(v1alpha1.OperationSucceeded))
	if strings.Contains(strings.Join(got.Status.Plan.Risks, " "), "no quorum") {
		t.Errorf("the risks are %v", got.Status.Plan.Risks)
	}
}

// A controller that is killed before or after any of its writes goes on where it was, and nothing is moved out of order.
func TestAKubernetesUpgradeIsKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	want, deaths := slices.DeleteFunc(slices.Clone(inOrderOf), func(move string) bool { return strings.HasPrefix(move, "cp-3") }), 0
	for at := 1; ; at++ {
		v := newRelease(t, 2, 1)
		v.create("up", toNew)
		v.start(at)
		died := false
		for looks := 0; !isOver(v.operation("up")); looks++ {
			if err := v.look(context.Background()); err != nil {
				if !strings.Contains(err.Error(), errDead.Error()) {
					t.Fatalf("killed at %d: %v", at, err)
				}
				died = true
				v.start(0)
			}
			v.apply()
			if looks > 300 {
				t.Fatalf("killed at %d: never ends: %s", at, v.operation("up").Status.Message)
			}
		}
		if err := v.look(context.Background()); err != nil {
			died = true
			v.start(0)
		}
		if got := v.operation("up"); got.Status.Phase != v1alpha1.OperationSucceeded || !slices.Equal(v.moves, want) {
			t.Fatalf("killed at %d: %s (%s), moved %v", at, got.Status.Phase, got.Status.Message, v.moves)
		}
		v.asItWas()
		if !died {
			break
		}
		deaths++
	}
	if deaths < 60 {
		t.Errorf("died %d times: the moments are not all there", deaths)
	}
}

func TestWhatAKubernetesUpgradeWaitsFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disturb, mend func(*release)
		words         string
		moves         int
	}{
		"a control plane that isn't Ready": {
			func(v *release) { v.ready("cp-3", false) }, func(v *release) { v.ready("cp-3", true) }, "control plane cp-3 is not Ready", 0,
		},
		"a configuration that isn't applied": {
			func(v *release) { v.applied("cp-1", false) }, func(v *release) { v.applied("cp-1", true) }, "nothing is changed until it runs what was decided last; its configuration isn't applied: held", 0,
		},
		"a static pod that doesn't come": {
			func(v *release) { v.stuck["cp-2"] = true }, func(v *release) { v.stuck["cp-2"] = false }, "cp-2: KubeAPIServer: its kube-apiserver is v1.36.4 still", 1,
		},
		"a snapshot": {
			func(v *release) { v.snapshotFails(true) }, func(v *release) { v.snapshotFails(false) }, "there is no fresh snapshot of etcd", 0,
		},
		"a kubelet that doesn't come": {
			func(v *release) { v.stuck["worker-1"] = true }, func(v *release) { v.stuck["worker-1"] = false }, "worker-1: Kubelet: its kubelet is v1.36.4 still", 12,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newRelease(t, 3, 1)
			c.disturb(v)
			v.create("up", toNew)
			v.until("up", func(o *v1alpha1.TalosOperation) bool { return strings.Contains(o.Status.Message, c.words) })
			if len(v.moves) != c.moves {
				t.Errorf("moved %v", v.moves)
			}
			c.mend(v)
			v.until("up", inPhase(v1alpha1.OperationSucceeded))
			if !slices.Equal(v.moves, inOrderOf) {
				t.Errorf("moved %v", v.moves)
			}
		})
	}
}

func TestAKubernetesUpgradeThatIsCancelledLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ after, at string }{
		"at a component": {"cp-1 kube-apiserver", "cp-2: KubeAPIServer: its kube-apiserver is"},
		"at a kubelet":   {"cp-1 kubelet", "cp-2: Kubelet: its kubelet is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newRelease(t, 3, 1)
			v.create("up", toNew)
			v.until("up", func(o *v1alpha1.TalosOperation) bool {
				v.stuck["cp-2"] = slices.Contains(v.moves, c.after)
				return strings.Contains(o.Status.Message, c.at)
			})
			v.control("up", func(c *v1alpha1.OperationControl) { c.CancelRequested = true })
			v.stuck["cp-2"] = false
			v.until("up", inPhase(v1alpha1.OperationCancelled))
			v.asItWas()
			before := len(v.moves)
			v.create("go on", toNew)
			v.until("go on", inPhase(v1alpha1.OperationSucceeded))
			if got := len(v.moves); got != len(inOrderOf) || before == got {
				t.Errorf("moved %v, %d of them before", v.moves, before)
			}
		})
	}
}

func TestAKubernetesUpgradeThatCantBe(t *testing.T) {
	t.Parallel()
	patch := func(v *release, name, section string) {
		patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name}}
		patch.Spec.Target.ClusterRef.Name = "prod"
		patch.Spec.Cluster = &v1alpha1.ClusterSection{Raw: []byte(section)}
		if _, err := v.api.IchorV1alpha1().TalosConfigPatches().Create(context.Background(), patch, metav1.CreateOptions{}); err != nil {
			v.t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*release)
		to     string
		words  string
	}{
		"two minor versions": {func(*release) {}, "v1.38.0", "upgrade to v1.37 first"},
		"back":               {func(*release) {}, "v1.36.1", "can't be taken back"},
		"Talos doesn't run it": {
			func(v *release) {
				v.change("cp-2", func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = "v1.13.9" })
			}, "v1.37.0", "cp-2: version of Kubernetes 1.37.0 is too new to be used with Talos 1.13.9",
		},
		"a Talos that a machine is to have doesn't run it": {
			func(v *release) {
				v.change("cp-2", func(m *v1alpha1.TalosMachine) { m.Status.SettledVersions.Talos = "v1.13.9" })
			}, "v1.37.0", "cp-2 runs Talos v1.14.5, and is to have v1.13.9: ",
		},
		"a feature gate that is gone": {
			func(v *release) {
				patch(v, "sidecars", `{"apiServer":{"extraArgs":{"feature-gates":"SidecarContainers=true,NodeLogQuery=true"}}}`)
			}, "v1.37.0", "TalosConfigPatch sidecars, cluster.apiServer.extraArgs.feature-gates: feature gate SidecarContainers of kube-apiserver is gone in 1.37",
		},
		"an API version that is gone and in use": {
			func(v *release) {
				v.deprecated = map[string][]kube.DeprecatedAPI{"10.0.0.2:6443": {{Group: "networking.k8s.io", Version: "v1beta1", Resource: "servicecidrs", RemovedRelease: "1.37"}}}
			}, "v1.37.0", "servicecidrs of networking.k8s.io/v1beta1 is in use, and Kubernetes 1.37 doesn't serve it any more: it was asked for on cp-2",
		},
		"a machine with a configuration of its own": {
			func(v *release) {
				v.change("worker-1", func(m *v1alpha1.TalosMachine) { m.Status.SettledVersions = nil })
			}, newVersion, "adopted with a configuration of their own, which Ichor doesn't change: worker-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newRelease(t, 3, 1)
			c.change(v)
			v.create("up", func(spec *v1alpha1.TalosOperationSpec) {
				spec.KubernetesUpgrade = &v1alpha1.KubernetesUpgrade{Version: c.to}
			})
			got := v.until("up", func(o *v1alpha1.TalosOperation) bool { return isOver(o) })
			if got.Status.Phase != v1alpha1.OperationFailed || !strings.Contains(got.Status.Message, c.words) {
				t.Errorf("%s: %s", got.Status.Phase, got.Status.Message)
			}
			if len(v.moves) > 0 || len(v.drainer.drained) > 0 {
				t.Errorf("moved %v, drained %v", v.moves, v.drainer.drained)
			}
		})
	}
}

// Where kube-apiserver can't be asked for what it was asked for, that is told, not taken for nothing; within a minor version
// nobody need be asked.
func TestWhichAPIVersionsAreInUseMayNotBeKnown(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]v1alpha1.CheckResult{"v1.37.0": v1alpha1.CheckWarned, newVersion: v1alpha1.CheckPassed} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			v := newRelease(t, 3, 0)
			v.metricsErr = errors.New("it answers 403 Forbidden")
			v.create("up", func(spec *v1alpha1.TalosOperationSpec) {
				spec.Mode, spec.KubernetesUpgrade = v1alpha1.OperationModePlan, &v1alpha1.KubernetesUpgrade{Version: to}
			})
			got := v.until("up", func(o *v1alpha1.TalosOperation) bool { return isOver(o) })
			for _, check := range got.Status.Plan.Checks {
				if check.Name != kubernetesupgrade.CheckAPIVersions {
					continue
				}
				if told := strings.Contains(check.Message, "cp-3: whether API versions are in use that v1.37.0 doesn't serve isn't known, as it answers 403 Forbidden"); check.Result != want || told != (want == v1alpha1.CheckWarned) {
					t.Errorf("%s: %s", check.Result, check.Message)
				}
				return
			}
			t.Errorf("there is no such check in %+v", got.Status.Plan.Checks)
		})
	}
}

// snapshotFails has every control plane's etcd give no snapshot.
func (v *release) snapshotFails(is bool) {
	for _, machine := range v.node {
		machine.Do(func(s *talostest.State) {
			if s.SnapshotErr = nil; is {
				s.SnapshotErr = errors.New("it broke off")
			}
		})
	}
}

// applied sets the condition of a machine that tells whether it runs what was decided last.
func (v *release) applied(name string, is bool) {
	v.t.Helper()
	v.change(name, func(m *v1alpha1.TalosMachine) {
		condition := metav1.Condition{Type: v1alpha1.ConditionConfigApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHeld, Message: "held"}
		if is {
			condition.Status = metav1.ConditionTrue
		}
		m.Status.Conditions = append(slices.DeleteFunc(m.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition.Type }), condition)
	})
}

// An operation may wait for days between its plan and its turn. What another one brought to a later version stays there.
func TestAKubernetesUpgradeThatWasPlannedLongAgoTakesNothingBack(t *testing.T) {
	t.Parallel()
	const later = "v1.37.0"
	v := newRelease(t, 3, 1)
	v.create("a-later", func(spec *v1alpha1.TalosOperationSpec) {
		spec.KubernetesUpgrade = &v1alpha1.KubernetesUpgrade{Version: later}
	})
	v.create("b-planned", toNew)
	v.until("b-planned", func(o *v1alpha1.TalosOperation) bool {
		return strings.Contains(o.Status.Message, "waits for operation a-later")
	})
	got := v.until("b-planned", inPhase(v1alpha1.OperationPaused))
	if !strings.Contains(got.Status.Message, "its kube-apiserver is to be v1.37.0 by now, and Kubernetes can't be taken back to v1.36.6") {
		t.Errorf("it says %q", got.Status.Message)
	}
	if phase := v.operation("a-later").Status.Phase; phase != v1alpha1.OperationSucceeded || !slices.Equal(v.moves, inOrderOf) {
		t.Errorf("the other is %s, and moved %v", phase, v.moves)
	}
	v.control("b-planned", func(c *v1alpha1.OperationControl) { c.CancelRequested = true })
	v.until("b-planned", inPhase(v1alpha1.OperationCancelled))
	v.asItWas()
	// Of a worker alone the kubelet isn't either.
	if is := laterThan(newVersion, v.machine("worker-1").Status.SettledVersions, kubernetesupgrade.Kubelet); is != later {
		t.Errorf("a kubelet would be taken back from %q", is)
	}
}
