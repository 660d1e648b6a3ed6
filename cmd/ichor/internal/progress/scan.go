// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	informers "maesh.dev/ichor/pkg/client/informers/externalversions/ichor/v1alpha1"
)

// scanBarWidth is the number of cells of a scan's bar.
const scanBarWidth = 16

// Scan is the board of one requested scan of a cluster's subnets.
type Scan struct {
	cluster, request string
	asked            time.Time
	latest           v1alpha1.DiscoveryStatus
	seen             bool
	answered         bool
	vanished         bool
	trouble          string
}

// NewScan makes a board for a scan that was asked for with a request text.
func NewScan(cluster, request string, asked time.Time) *Scan {
	return &Scan{cluster: cluster, request: request, asked: asked}
}

// Result is the status that answered the request.
func (s *Scan) Result() v1alpha1.DiscoveryStatus { return s.latest }

// Observe takes a cluster's state in. The request is answered when the last finished scan names it, or names a later
// request: that scan covered this one.
func (s *Scan) Observe(cluster *v1alpha1.TalosCluster) string {
	before, first := s.latest, !s.seen
	s.latest, s.seen = cluster.Status.Discovery, true
	finished := cluster.Status.Discovery.ScanRequest
	s.answered = finished == s.request || (cluster.Spec.Discovery.ScanRequest != s.request && finished == cluster.Spec.Discovery.ScanRequest)
	switch {
	case s.answered:
		return "scanned " + s.counts()
	case first, before.Phase != s.latest.Phase, before.Done != s.latest.Done:
		return s.state()
	default:
		return ""
	}
}

func (s *Scan) state() string {
	if s.latest.Phase == v1alpha1.DiscoveryScanning {
		return "scanning " + s.counts()
	}
	return "the scan was asked for and hasn't begun"
}

func (s *Scan) counts() string {
	of := screen.Plural(int(s.latest.Total), "address", "addresses")
	if s.latest.Phase == v1alpha1.DiscoveryScanning {
		of = fmt.Sprintf("%d of %s", s.latest.Done, of)
	}
	return of + ": " + Counts(s.latest)
}

// Counts says what was met.
func Counts(status v1alpha1.DiscoveryStatus) string {
	return fmt.Sprintf("%d in maintenance, %d already configured, %d not Talos, %d silent",
		status.Maintenance, status.AlreadyConfigured, status.NotTalos, status.Unreachable)
}

// Lines implements Board.
func (s *Scan) Lines(now time.Time, style screen.Style, width int) []string {
	elapsed := screen.Age(now, s.asked)
	mark, state := style.Wait, s.state()
	if s.answered {
		mark, state = style.Good, "scanned "+s.counts()
	}
	lines := []string{strings.Join([]string{style.Heading(s.cluster), mark(s.bar()), elapsed, state}, "  ")}
	if s.trouble != "" {
		lines = append(lines, style.Bad(s.trouble))
	}
	for i := range lines {
		lines[i] = screen.Cut(lines[i], width)
	}
	return lines
}

func (s *Scan) bar() string {
	filled := 0
	switch {
	case s.answered:
		filled = scanBarWidth
	case s.latest.Phase == v1alpha1.DiscoveryScanning && s.latest.Total > 0:
		filled = min(int(int64(s.latest.Done)*scanBarWidth/int64(s.latest.Total)), scanBarWidth)
	}
	return strings.Repeat("▰", filled) + strings.Repeat("▱", scanBarWidth-filled)
}

// WatchScan is the work of following a scan until it is answered.
func WatchScan(client versioned.Interface, board *Scan) Work {
	return func(ctx context.Context, update func(func() string)) error {
		done := newSignal()
		observe := func(object any) {
			cluster, ok := object.(*v1alpha1.TalosCluster)
			if !ok {
				return
			}
			update(func() string {
				board.trouble = ""
				line := board.Observe(cluster)
				if board.answered {
					done.fire()
				}
				return line
			})
		}
		vanish := func() {
			update(func() string {
				board.vanished = true
				done.fire()
				return "the cluster's object was deleted"
			})
		}
		narrowed := func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", board.cluster).String()
		}
		informer := informers.NewFilteredTalosClusterInformer(client, 0, cache.Indexers{}, narrowed)
		err := watch(ctx, informer, watcher{
			handler: cache.ResourceEventHandlerFuncs{
				AddFunc: observe, UpdateFunc: func(_, object any) { observe(object) }, DeleteFunc: func(any) { vanish() },
			},
			synced: func() {
				if _, exists, _ := informer.GetStore().GetByKey(board.cluster); !exists {
					vanish()
				}
			},
			lost: func(text string) { update(func() string { return tell(&board.trouble, text) }) },
			done: done.fired,
		})
		if err == nil && board.vanished {
			return fmt.Errorf("taloscluster %q was deleted while its scan was waited for", board.cluster)
		}
		return err
	}
}
