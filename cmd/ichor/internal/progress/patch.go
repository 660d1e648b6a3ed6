// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
)

// patchBarWidth is the number of cells of a patch's bar.
const patchBarWidth = 16

// Patch is the board of one patch on its way to the machines that it is for.
type Patch struct {
	name       string
	generation int64
	started    time.Time
	latest     v1alpha1.TalosConfigPatchStatus
	said       string
	outcome    outcome
	vanished   bool
	trouble    string
}

// NewPatch makes a board for a patch as of a generation of its spec.
func NewPatch(name string, generation int64, started time.Time) *Patch {
	return &Patch{name: name, generation: generation, started: started}
}

// Observe takes a patch's state in. It is done when all machines run with it, or when the rest waits for a person: for a
// reboot, or for the patch to be mended.
func (p *Patch) Observe(patch *v1alpha1.TalosConfigPatch) (line string) {
	p.latest = patch.Status
	condition := meta.FindStatusCondition(patch.Status.Conditions, v1alpha1.ConditionReady)
	if patch.Status.ObservedGeneration < p.generation || condition == nil {
		return p.news("waits for the controller to look at it")
	}
	switch {
	case condition.Status == metav1.ConditionTrue, condition.Reason == v1alpha1.ReasonPendingReboot:
		p.outcome = succeeded
	case condition.Reason == v1alpha1.ReasonPatchRefused && p.settled():
		p.outcome = failed
	}
	return p.news(condition.Message)
}

// settled is true once nothing happens by itself any more.
func (p *Patch) settled() bool {
	counts := p.latest.Machines
	return counts.Applied+counts.PendingReboot+counts.Refused >= counts.Matched
}

func (p *Patch) news(text string) string {
	if text == p.said {
		return ""
	}
	p.said = text
	return "patch " + p.name + ": " + text
}

// Message is what was said of the patch last.
func (p *Patch) Message() string { return p.said }

// Lines implements Board.
func (p *Patch) Lines(now time.Time, style screen.Style, width int) []string {
	mark := style.Wait
	switch p.outcome {
	case succeeded:
		mark = style.Good
	case failed:
		mark = style.Bad
	}
	lines := []string{strings.Join([]string{style.Heading(p.name), mark(p.bar()), screen.Age(now, p.started), p.said}, "  ")}
	if p.trouble != "" {
		lines = append(lines, style.Bad(p.trouble))
	}
	for i := range lines {
		lines[i] = screen.Cut(lines[i], width)
	}
	return lines
}

func (p *Patch) bar() string {
	filled, counts := 0, p.latest.Machines
	switch {
	case p.outcome == succeeded:
		filled = patchBarWidth
	case counts.Matched > 0:
		filled = min(int(counts.Applied+counts.PendingReboot)*patchBarWidth/int(counts.Matched), patchBarWidth)
	}
	return strings.Repeat("▰", filled) + strings.Repeat("▱", patchBarWidth-filled)
}

// WatchPatch is the work of following a patch until nothing more happens to it by itself.
func WatchPatch(client versioned.Interface, board *Patch) Work {
	return func(ctx context.Context, update func(func() string)) error {
		done := newSignal()
		observe := func(object any) {
			patch, ok := object.(*v1alpha1.TalosConfigPatch)
			if !ok {
				return
			}
			update(func() string {
				board.trouble = ""
				line := board.Observe(patch)
				if board.outcome != underWay {
					done.fire()
				}
				return line
			})
		}
		vanish := func() {
			update(func() string {
				board.vanished = true
				done.fire()
				return "patch " + board.name + " was deleted"
			})
		}
		informer := informers.NewFilteredTalosConfigPatchInformer(client, 0, cache.Indexers{}, narrow([]string{board.name}))
		err := watch(ctx, informer, watcher{
			handler: cache.ResourceEventHandlerFuncs{
				AddFunc: observe, UpdateFunc: func(_, object any) { observe(object) }, DeleteFunc: func(any) { vanish() },
			},
			synced: func() {
				if _, exists, _ := informer.GetStore().GetByKey(board.name); !exists {
					vanish()
				}
			},
			lost: func(text string) { update(func() string { return tell(&board.trouble, text) }) },
			done: done.fired,
		})
		switch {
		case err != nil:
			return err
		case board.vanished:
			return fmt.Errorf("talosconfigpatch %q was deleted while it was waited for", board.name)
		case board.outcome == failed:
			return fmt.Errorf("talosconfigpatch %q: %s", board.name, board.said)
		}
		return nil
	}
}
