// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
)

// A changed patch may be for a thousand workers, of which a few at a time get it. To look at them all, before the first
// ones have it, takes the time in which those would have had it. So a worker whose patches changed is not looked at while
// all places are taken, but for the look that it gets every minute anyway.

// waitingPerSecond is how many machines are found to wait for a changed patch in a second.
const waitingPerSecond = 50

// looks remembers when each machine was last looked at.
type looks struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newLooks() *looks { return &looks{at: map[string]time.Time{}} }

func (l *looks) note(machine string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[machine] = now
}

func (l *looks) forget(machine string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.at, machine)
}

// due is how long until the machine gets its regular look; zero or less if it is time for it, or it never had one.
func (l *looks) due(machine string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.at[machine]
	if !known {
		return 0
	}
	return pollReady - now.Sub(at)
}

// waitsForLiveTurn tells whether the machine is a running worker that has nothing to be looked at for but changed patches,
// while as many as may be are being configured, and says so; nothing is asked of the machine.
func (v *visit) waitsForLiveTurn() (bool, error) {
	due := v.looks.due(v.m.Name, v.now)
	if due <= 0 || v.m.Spec.Role != v1alpha1.RoleWorker || !v.m.DeletionTimestamp.IsZero() || v.m.Status.Config == nil ||
		v.m.Status.Config.AppliedHash == "" || !isTrue(v.m, v1alpha1.ConditionReady) || !isTrue(v.m, v1alpha1.ConditionReachable) ||
		!isTrue(v.m, v1alpha1.ConditionJoined) {
		return false, nil
	}
	patches, err := v.patches.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list patches: %w", err)
	}
	if slices.Equal(inputsOf(machineconfig.PatchesFor(v.m, patches)), v.m.Status.Config.Patches) {
		return false, nil
	}
	all, err := v.machines.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list machines: %w", err)
	}
	why := v.turns.askLive(v.m, v.cluster, all, v.now)
	if why == "" {
		return false, nil
	}
	v.postpone(v1alpha1.ReasonWaitingForTurn, why)
	v.after = due
	return true, nil
}

func inputsOf(patches []*v1alpha1.TalosConfigPatch) []v1alpha1.ConfigInput {
	var inputs []v1alpha1.ConfigInput
	for _, patch := range patches {
		inputs = append(inputs, v1alpha1.ConfigInput{Name: patch.Name, Generation: patch.Generation})
	}
	return inputs
}

// enqueueSpread brings a look at machines for which a patch changed: at once at as many as may be configured at a time, at
// the others little by little, so that those whose turn it is aren't behind hundreds whose turn it isn't.
func (c *Controller) enqueueSpread(concerned []*v1alpha1.TalosMachine) {
	slices.SortFunc(concerned, func(a, b *v1alpha1.TalosMachine) int {
		if a.Spec.Role != b.Spec.Role {
			return strings.Compare(string(a.Spec.Role), string(b.Spec.Role)) // "controlplane" before "worker"
		}
		return strings.Compare(a.Name, b.Name)
	})
	begun := map[string]int{}
	for _, m := range concerned {
		places := v1alpha1.DefaultMaxParallel
		cluster, err := c.clusters.Get(m.Spec.ClusterRef.Name)
		if err == nil {
			places = maxParallel(cluster)
		}
		later := max(begun[m.Spec.ClusterRef.Name]-places, 0)
		begun[m.Spec.ClusterRef.Name]++
		c.queue.AddAfter(m.Name, time.Duration(later)*time.Second/waitingPerSecond)
	}
}
