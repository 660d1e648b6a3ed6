// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The controller as it runs: informers, queue and workers, on events alone.
func TestRunReactsAndEnds(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	core := kubeinformers.NewSharedInformerFactory(s.kube, 0)
	factory := externalversions.NewSharedInformerFactory(s.api, 0)
	controller, err := New(Config{
		Client: s.api, Machines: factory.Ichor().V1alpha1().TalosMachines(), Clusters: factory.Ichor().V1alpha1().TalosClusters(),
		Patches: factory.Ichor().V1alpha1().TalosConfigPatches(), Nodes: core.Core().V1().Nodes(), NodeClient: s.kube.CoreV1(),
		Bundles: s, Values: SecretValues{Secrets: s.kube.CoreV1()}, Credentials: s, Dialer: s.world, Prober: s.world,
		Recorder: record.NewFakeRecorder(1000),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	factory.Start(ctx.Done())
	core.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx, 4) }()
	machine := s.add(11)
	err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		m, err := s.api.IchorV1alpha1().TalosMachines().Get(ctx, machine, metav1.GetOptions{})
		return err == nil && isTrue(m, v1alpha1.ConditionConfigApplied), nil
	})
	if err != nil {
		t.Fatalf("the machine got no configuration: %s", describeConditions(s.get(machine)))
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the controller didn't end")
	}
	factory.Shutdown()
	core.Shutdown()
}

func TestWordsThatChangeDontBringTheNextLookAtOnce(t *testing.T) {
	t.Parallel()
	base := func() *v1alpha1.TalosMachine {
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "u", ResourceVersion: "1"}}
		setFalse(m, v1alpha1.ConditionReady, v1alpha1.ReasonUnreachable, "before")
		return m
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		want   int
	}{
		"the words of a condition": {func(m *v1alpha1.TalosMachine) {
			setFalse(m, v1alpha1.ConditionReady, v1alpha1.ReasonUnreachable, "after")
		}, 0},
		"an address":     {func(m *v1alpha1.TalosMachine) { m.Status.Addresses = []string{"10.0.0.1"} }, 1},
		"the spec":       {func(m *v1alpha1.TalosMachine) { m.Spec.ApprovalState = v1alpha1.ApprovalApproved }, 1},
		"an annotation":  {func(m *v1alpha1.TalosMachine) { annotate(m, v1alpha1.HoldApplyAnnotation, "x") }, 1},
		"it is deleted":  {deleting, 1},
		"nothing at all": {func(m *v1alpha1.TalosMachine) { m.ResourceVersion = "1" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			now := base()
			now.ResourceVersion = "2"
			tc.change(now)
			s.machine.enqueueChanged(base(), now)
			if got := s.machine.queue.Len(); got != tc.want {
				t.Errorf("%d looks are due, want %d", got, tc.want)
			}
		})
	}
}
