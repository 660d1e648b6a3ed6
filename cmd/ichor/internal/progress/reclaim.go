// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
)

// Reclaim is the board of one reclaim.
type Reclaim struct {
	name     string
	started  time.Time
	phase    v1alpha1.ReclaimPhase
	said     string
	vanished bool
	trouble  string
}

// NewReclaim makes a board for a reclaim that was just made.
func NewReclaim(name string, started time.Time) *Reclaim {
	return &Reclaim{name: name, started: started}
}

// Observe takes a reclaim's state in. The line is what is new about it.
func (r *Reclaim) Observe(reclaim *v1alpha1.MachineReclaim) (line string) {
	phase, message := reclaim.Status.Phase, reclaim.Status.Message
	if phase == r.phase && message == r.said {
		return ""
	}
	r.phase, r.said = phase, message
	if phase == "" {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("reclaim %s: %s: %s", r.name, phase, message), ": ")
}

// Done tells that nothing will happen any more.
func (r *Reclaim) Done() bool {
	return r.phase == v1alpha1.ReclaimSucceeded || r.phase == v1alpha1.ReclaimRefused || r.phase == v1alpha1.ReclaimFailed
}

// Lines implements Board.
func (r *Reclaim) Lines(now time.Time, style screen.Style, width int) []string {
	mark := style.Wait
	switch r.phase {
	case v1alpha1.ReclaimSucceeded:
		mark = style.Good
	case v1alpha1.ReclaimRefused, v1alpha1.ReclaimFailed:
		mark = style.Bad
	}
	lines := []string{strings.Join([]string{style.Heading(r.name), mark(string(r.phase)), screen.Age(now, r.started), r.said}, "  ")}
	if r.trouble != "" {
		lines = append(lines, style.Bad(r.trouble))
	}
	for i := range lines {
		lines[i] = screen.Cut(lines[i], width)
	}
	return lines
}

// WatchReclaim is the work of following a reclaim to its end.
func WatchReclaim(client versioned.Interface, board *Reclaim) Work {
	return func(ctx context.Context, update func(func() string)) error {
		done := newSignal()
		observe := func(object any) {
			reclaim, ok := object.(*v1alpha1.MachineReclaim)
			if !ok {
				return
			}
			update(func() string {
				board.trouble = ""
				line := board.Observe(reclaim)
				if board.Done() {
					done.fire()
				}
				return line
			})
		}
		vanish := func() {
			update(func() string {
				board.vanished = true
				done.fire()
				return "reclaim " + board.name + " was deleted"
			})
		}
		informer := informers.NewFilteredMachineReclaimInformer(client, 0, cache.Indexers{}, narrow([]string{board.name}))
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
			return fmt.Errorf("machinereclaim %q was deleted while it was waited for; a machine that was told to wipe itself goes on", board.name)
		case board.phase == v1alpha1.ReclaimRefused:
			return cli.WithCode(cli.ExitBlocked, fmt.Errorf("machinereclaim %q is refused: %s", board.name, board.said))
		case board.phase == v1alpha1.ReclaimFailed:
			return fmt.Errorf("machinereclaim %q failed: %s", board.name, board.said)
		}
		return nil
	}
}
