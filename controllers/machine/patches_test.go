// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// patch writes a patch with a section "machine", or changes it.
func (s *stack) patch(name, machine string, changes ...func(*v1alpha1.TalosConfigPatch)) {
	s.t.Helper()
	patches := s.api.IchorV1alpha1().TalosConfigPatches()
	ctx := context.Background()
	patch, err := patches.Get(ctx, name, metav1.GetOptions{})
	is := err == nil
	if !is {
		patch = &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("patch-" + name)}}
		patch.Spec.Target.ClusterRef.Name = "prod"
	}
	patch.Generation++
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(machine)}
	for _, change := range changes {
		change(patch)
	}
	if is {
		err = s.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosconfigpatches"), patch, "")
	} else {
		_, err = patches.Create(ctx, patch, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) unpatch(name string) {
	s.t.Helper()
	if err := s.api.IchorV1alpha1().TalosConfigPatches().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// byHand changes what a machine runs, as a person with talosctl would.
func (s *stack) byHand(name, old, replacement string) {
	s.t.Helper()
	s.machines[name].Do(func(state *talostest.State) {
		if !bytes.Contains(state.Config, []byte(old)) {
			s.t.Errorf("the machine's configuration has no %q", old)
		}
		state.Config = bytes.Replace(state.Config, []byte(old), []byte(replacement), 1)
	})
}

func (s *stack) runs(name string) string { return string(s.machines[name].Snapshot().Config) }

// joined are machines that are Ready and take changes without leaving their mode.
func joined(t *testing.T, numbers ...int) (s *stack, names []string) {
	t.Helper()
	s = newStack(t)
	for _, n := range numbers {
		names = append(names, s.add(n))
	}
	s.settle(names...)
	for _, name := range names {
		s.live(name)
	}
	return s, names
}

func TestAPatchReachesAMachineAndLeavesItAgain(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11)
	machine := names[0]
	before := s.runs(machine)
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	s.mustReconcile(machine)
	s.settle(machine)
	if !strings.Contains(s.runs(machine), "vm.swappiness") {
		t.Fatal("the patch isn't in what the machine runs")
	}
	m := s.get(machine)
	if diff := cmp.Diff([]v1alpha1.ConfigInput{{Name: "tuning", Generation: 1}}, m.Status.Config.Patches); diff != "" {
		t.Error(diff)
	}
	wantCondition(t, m, v1alpha1.ConditionDriftDetected, metav1.ConditionFalse, v1alpha1.ReasonInSync)
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"2"}}`)
	s.mustReconcile(machine)
	s.settle(machine)
	if got := s.get(machine).Status.Config.Patches; len(got) != 1 || got[0].Generation != 2 {
		t.Errorf("the machine's patches are %v", got)
	}
	s.unpatch("tuning")
	s.mustReconcile(machine)
	s.settle(machine)
	if diff := cmp.Diff(before, s.runs(machine)); diff != "" {
		t.Errorf("the patch left something behind:\n%s", diff)
	}
	if got := s.applies(machine); got != 4 {
		t.Errorf("the machine got %d configurations, want 4", got)
	}
	assertQuiet(t, s, machine)
}

func TestAMachineIsInstalledWithItsPatches(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	s.patch("others", `{"sysctls":{"vm.max_map_count":"1"}}`, func(p *v1alpha1.TalosConfigPatch) { p.Spec.Target.Role = v1alpha1.RoleControlPlane })
	machine := s.add(11)
	s.settle(machine)
	if got := s.runs(machine); !strings.Contains(got, "vm.swappiness") || strings.Contains(got, "vm.max_map_count") || s.applies(machine) != 1 {
		t.Errorf("%d configurations, the last is:\n%s", s.applies(machine), got)
	}
	assertQuiet(t, s, machine)
}

func TestWhatSomebodyChangedOnAMachine(t *testing.T) {
	t.Parallel()
	for policy, mended := range map[v1alpha1.DriftPolicy]bool{v1alpha1.DriftPolicyReport: false, v1alpha1.DriftPolicyReapply: true} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s, names := joined(t, 11)
			machine := names[0]
			s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.DriftPolicy = policy })
			s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
			s.mustReconcile(machine)
			s.settle(machine)
			s.byHand(machine, `vm.swappiness: "1"`, `vm.swappiness: "99"`)
			m := s.mustReconcile(machine)
			want := []v1alpha1.ConfigDrift{{Document: "v1alpha1", Path: `machine.sysctls["vm.swappiness"]`, Want: "1", Have: "99"}}
			if diff := cmp.Diff(want, m.Status.Config.Drift); diff != "" || m.Status.Config.DriftCount != 1 {
				t.Errorf("drift (-want +got):\n%s", diff)
			}
			wantCondition(t, m, v1alpha1.ConditionDriftDetected, metav1.ConditionTrue, v1alpha1.ReasonDrifted, `machine.sysctls["vm.swappiness"]`)
			if !mended {
				if !isTrue(m, v1alpha1.ConditionReady) || s.applies(machine) != 2 {
					t.Errorf("it was to be reported only: %d configurations, %s", s.applies(machine), describeConditions(m))
				}
				assertQuiet(t, s, machine)
				return
			}
			s.settle(machine)
			if got := s.runs(machine); !strings.Contains(got, `vm.swappiness: "1"`) {
				t.Errorf("it was not mended")
			}
			m = s.get(machine)
			wantCondition(t, m, v1alpha1.ConditionDriftDetected, metav1.ConditionFalse, v1alpha1.ReasonInSync)
			if len(m.Status.Config.Drift) > 0 {
				t.Errorf("drift is %v", m.Status.Config.Drift)
			}
			assertQuiet(t, s, machine)
		})
	}
}

// Somebody changes what needs a reboot, and then, before anybody looks again, takes that back and changes something else:
// that a reboot was needed says nothing of it.
func TestWhatSomebodyChangedInstead(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11)
	machine := names[0]
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.DriftPolicy = v1alpha1.DriftPolicyReapply })
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	s.mustReconcile(machine)
	s.settle(machine)
	const udev = "machine:\n    udev:\n        rules: [mine]\n"
	s.byHand(machine, "machine:\n", udev)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonRebootRequired, "machine.udev")
	s.byHand(machine, udev, "machine:\n")
	s.byHand(machine, `vm.swappiness: "1"`, `vm.swappiness: "99"`)
	s.mustReconcile(machine)
	s.settle(machine)
	if got := s.runs(machine); !strings.Contains(got, `vm.swappiness: "1"`) {
		t.Errorf("it was not mended: %s", describeConditions(s.get(machine)))
	}
	wantCondition(t, s.get(machine), v1alpha1.ConditionDriftDetected, metav1.ConditionFalse, v1alpha1.ReasonInSync)
	assertQuiet(t, s, machine)
}

// What needs a reboot waits, on every version; nothing is sent, and nobody is said to have changed the machine.
func TestAPatchThatNeedsAReboot(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.13.9", "v1.14.5"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s, names := joined(t, 11)
			machine := names[0]
			s.machines[machine].Do(func(state *talostest.State) { state.Facts.TalosVersion = version })
			s.patch("udev", `{"udev":{"rules":["SUBSYSTEM==\"drm\""]}}`)
			for range 3 {
				s.mustReconcile(machine)
			}
			m := s.get(machine)
			wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonRebootRequired, "machine.udev", "configRollout")
			wantCondition(t, m, v1alpha1.ConditionDriftDetected, metav1.ConditionFalse, v1alpha1.ReasonPendingReboot)
			if !m.Status.Config.PendingReboot || !isTrue(m, v1alpha1.ConditionReady) || s.applies(machine) != 1 {
				t.Errorf("pending %t, %d configurations, %s", m.Status.Config.PendingReboot, s.applies(machine), describeConditions(m))
			}
			s.unpatch("udev")
			s.mustReconcile(machine)
			if m := s.get(machine); m.Status.Config.PendingReboot || !isTrue(m, v1alpha1.ConditionConfigApplied) {
				t.Errorf("the patch is gone, and something is left: %s", describeConditions(m))
			}
			assertQuiet(t, s, machine)
		})
	}
}

// A node of 1.13 may know of a reboot that the table doesn't: its word stays, and it isn't asked again and again.
func TestAMachineThatSaysItNeedsAReboot(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11)
	machine := names[0]
	s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.RefuseLive })
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	for range 3 {
		m := s.mustReconcile(machine)
		wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonRebootRequired, "immediate mode", "configRollout")
		if !m.Status.Config.PendingReboot {
			t.Fatal("nothing is said to wait for a reboot")
		}
	}
	wantCondition(t, s.get(machine), v1alpha1.ConditionDriftDetected, metav1.ConditionFalse, v1alpha1.ReasonPendingReboot)
	assertQuiet(t, s, machine)
}

func TestAPatchThatAMachineCantHave(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11)
	machine := names[0]
	s.patch("good", `{"sysctls":{"vm.swappiness":"1"}}`)
	s.mustReconcile(machine)
	s.settle(machine)
	good := s.runs(machine)
	s.patch("wrong", `{"sysctls":{"vm.absent":{"$patch":"delete"}}}`)
	m := s.mustReconcile(machine)
	want := &v1alpha1.RefusedPatch{Name: "wrong", Path: "spec.machine.sysctls.vm.absent", Reason: "deletes what isn't there"}
	if diff := cmp.Diff(want, m.Status.Config.Refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	wantCondition(t, m, v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonPatchRefused, "patch wrong", "keeps its configuration")
	if !isTrue(m, v1alpha1.ConditionReady) || s.runs(machine) != good {
		t.Errorf("the last good configuration didn't stay: %s", describeConditions(m))
	}
	assertQuiet(t, s, machine)
	s.patch("wrong", `{"sysctls":{"vm.absent":"1"}}`)
	s.mustReconcile(machine)
	s.settle(machine)
	if m := s.get(machine); m.Status.Config.Refused != nil || !strings.Contains(s.runs(machine), "vm.absent") {
		t.Errorf("it was mended, but: %v", m.Status.Config.Refused)
	}
}

func TestValuesOfSecrets(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11)
	machine := names[0]
	ctx := context.Background()
	secrets := s.kube.CoreV1().Secrets(v1alpha1.SystemNamespace)
	s.patch("proxy", `{"nodeLabels":{"a":"b"}}`, func(p *v1alpha1.TalosConfigPatch) {
		p.Spec.SecretValues = []v1alpha1.SecretValue{{Path: "/machine/nodeAnnotations/token", SecretKeyRef: v1alpha1.SecretKeyReference{Name: "proxy", Key: "password"}}}
	})
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonPatchRefused, "there is no Secret proxy")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "proxy", Namespace: v1alpha1.SystemNamespace}, Data: map[string][]byte{"password": []byte("hunter2")}}
	secret, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.clock.Step(time.Minute)
	wantCondition(t, s.mustReconcile(machine), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonPatchRefused, "not meant for patches")
	secret.Labels = map[string]string{v1alpha1.PatchValuesLabel: "true"}
	if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.clock.Step(time.Minute)
	s.mustReconcile(machine)
	s.settle(machine)
	if !strings.Contains(s.runs(machine), "hunter2") {
		t.Fatal("the value isn't in what the machine runs")
	}
	secret.Data["password"] = []byte("hunter3")
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.clock.Step(time.Minute)
	s.mustReconcile(machine)
	s.settle(machine)
	if !strings.Contains(s.runs(machine), "hunter3") {
		t.Fatal("the new value isn't in what the machine runs")
	}
	// Also when somebody changed it on the machine, and when the patch is gone, the value is shown nowhere.
	s.byHand(machine, "hunter3", "hunter4")
	s.mustReconcile(machine)
	s.unpatch("proxy")
	s.machines[machine].Do(func(state *talostest.State) { state.Fault = talostest.Refuse })
	s.mustReconcile(machine)
	m := s.get(machine)
	said := fmt.Sprintf("%+v", m) + strings.Join(s.drained(), "\n")
	for _, value := range []string{"hunter2", "hunter3", "hunter4"} {
		if strings.Contains(said, value) {
			t.Errorf("%s is shown", value)
		}
	}
	if len(m.Status.Config.Drift) == 0 {
		t.Error("nothing differs, so nothing was shown")
	}
}

// At whatever write the controller is killed, the machine ends with its configuration.
func TestKilledWhileAPatchIsApplied(t *testing.T) {
	t.Parallel()
	for moment := 1; moment <= 8; moment++ {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			t.Parallel()
			s, names := joined(t, 11)
			machine := names[0]
			s.start(moment)
			s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
			for range 10 {
				_, _ = s.reconcile(machine)
			}
			s.process.kill()
			s.start(0)
			s.mustReconcile(machine)
			s.settle(machine)
			if !strings.Contains(s.runs(machine), "vm.swappiness") {
				t.Errorf("the patch didn't arrive")
			}
			if got := s.applies(machine); got > 3 {
				t.Errorf("the machine got %d configurations", got)
			}
			if got := s.get(machine).Status.Config.Patches; len(got) != 1 {
				t.Errorf("its patches are %v", got)
			}
			assertQuiet(t, s, machine)
		})
	}
}

// A configuration that does harm stops after as many workers as may be configured at a time.
func TestAHarmfulPatchStops(t *testing.T) {
	t.Parallel()
	s, names := joined(t, 11, 12, 13, 14, 15)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Apply.MaxParallel = 2 })
	for _, name := range names {
		s.machines[name].Do(func(state *talostest.State) {
			state.OnApply = func() { s.machines[name].Do(func(state *talostest.State) { state.Facts.Stage.Ready = false }) }
		})
	}
	s.patch("harm", `{"sysctls":{"vm.swappiness":"1"}}`)
	for range 5 {
		for _, name := range names {
			s.mustReconcile(name)
		}
		s.clock.Step(5 * time.Second)
	}
	harmed := 0
	for _, name := range names {
		if s.applies(name) > 1 {
			harmed++
		}
	}
	if harmed != 2 {
		t.Errorf("%d workers got it, want 2", harmed)
	}
	wantCondition(t, s.get(names[4]), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn, "spec.apply.maxParallel")
}

// A machine that booted an older version than it was given keeps the form that its configuration has: nothing is sent to it
// because it runs a newer one now.
func TestAMachineThatBootedAnOlderVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.changeCluster(func(c *v1alpha1.TalosCluster) { c.Spec.KubernetesVersion = "v1.35.4" })
	machine := s.add(11)
	s.machines[machine].Do(func(state *talostest.State) { state.Facts.TalosVersion = "v1.12.11" })
	for range 3 {
		s.mustReconcile(machine)
	}
	s.machines[machine].Do(func(state *talostest.State) { state.Facts.TalosVersion = "v1.14.5" })
	s.settle(machine)
	s.live(machine)
	for range 3 {
		s.mustReconcile(machine)
	}
	if got, m := s.applies(machine), s.get(machine); got != 1 || m.Status.SettledVersions.ConfigContract != "v1.12" {
		t.Errorf("the machine got %d configurations, for %s", got, m.Status.SettledVersions.ConfigContract)
	}
	assertQuiet(t, s, machine)
}

// Whoever waits for a place is looked at when one gets free.
func TestTheNextControlPlaneIsCalled(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	first, second := s.add(11, controlPlane), s.add(12, controlPlane)
	s.settle(first, second)
	for _, name := range []string{first, second} {
		s.live(name)
	}
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	s.mustReconcile(first)
	wantCondition(t, s.mustReconcile(second), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn)
	was := s.get(first)
	is := s.mustReconcile(first)
	if !isTrue(is, v1alpha1.ConditionReady) {
		t.Fatalf("the first isn't done: %s", describeConditions(is))
	}
	s.machine.enqueueChanged(was, is)
	if got := s.called(); !slices.Contains(got, second) {
		t.Errorf("called are %q, want %s, which waits", got, second)
	}
}

func TestControlPlanesWaitForEachOthersHealth(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	first, second := s.add(11, controlPlane), s.add(12, controlPlane)
	s.settle(first, second)
	for _, name := range []string{first, second} {
		s.live(name)
	}
	s.machines[second].Do(func(state *talostest.State) { state.Facts.Stage.Ready = false })
	s.mustReconcile(second)
	s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	wantCondition(t, s.mustReconcile(first), v1alpha1.ConditionConfigApplied, metav1.ConditionFalse, v1alpha1.ReasonWaitingForTurn, second)
	// The one that isn't Ready may need it to become Ready.
	s.mustReconcile(second)
	if s.applies(first) != 1 || s.applies(second) != 2 {
		t.Errorf("configurations: %d and %d, want 1 and 2", s.applies(first), s.applies(second))
	}
	s.machines[second].Do(func(state *talostest.State) { state.Facts.Stage.Ready = true })
	s.settle(second)
	s.mustReconcile(first)
	s.settle(first)
	if s.applies(first) != 2 {
		t.Errorf("the first got %d configurations, want 2", s.applies(first))
	}
}

// A machine that was adopted with exactly what it would be given gets patches from then on; one with a configuration of its
// own keeps it.
func TestPatchesAndAdoptedMachines(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"with what it would be given": false, "with a configuration of its own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, names := joined(t, 11)
			machine := names[0]
			s.changeMachine(machine, func(m *v1alpha1.TalosMachine) {
				m.Spec.Origin, m.Spec.Address = v1alpha1.MachineAdopted, m.Status.Addresses[0]
				m.Status.Provisioning, m.Status.Config, m.Status.SettledVersions = nil, nil, nil
			})
			if own {
				s.byHand(machine, "machine:\n", "machine:\n    sysctls:\n        mine: \"1\"\n")
			}
			s.patch("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
			for range 3 {
				s.mustReconcile(machine)
			}
			m := s.get(machine)
			if got := strings.Contains(s.runs(machine), "vm.swappiness"); got == own {
				t.Errorf("the patch is on the machine: %t; %s", got, describeConditions(m))
			}
			if !own && m.Status.SettledVersions.ConfigContract == "" {
				t.Error("nothing says for which version its configuration is written, so it changes with its Talos")
			}
			if own {
				wantCondition(t, m, v1alpha1.ConditionDriftDetected, metav1.ConditionUnknown, reasonOwnConfiguration, "machine.sysctls")
			}
		})
	}
}
