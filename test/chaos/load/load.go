// SPDX-License-Identifier: Apache-2.0

// Package load writes as people, GitOps and the controller do, all at once, and notes in a ledger what it was told of each
// write. It doesn't know what is done to the servers meanwhile.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/pkg/client/clientset/versioned"
	client "maesh.dev/ichor/pkg/client/clientset/versioned/typed/ichor/v1alpha1"
	"maesh.dev/ichor/test/chaos/judge"
)

const (
	// Writers is how many write at a time.
	Writers = 20
	// requestFor is how long a writer waits for an answer.
	requestFor = 10 * time.Second
	// pace is the mean time between two writes of one writer; breath is that after one that failed, as clients do.
	pace   = 60 * time.Millisecond
	breath = 500 * time.Millisecond
	// readBack is how many of a hundred acknowledged writes are read at once, from another server.
	readBack = 25
)

// Load is what all writers share.
type Load struct {
	Ledger *judge.Ledger
	// Seen is what clients were told that wasn't a success.
	Seen *Seen

	doors []*versioned.Clientset // the first is the kube-apiserver
	seed  uint64
}

// New is a load on servers: the first configuration reaches the kube-apiserver, the others each ichor-apiserver.
func New(seed uint64, front *rest.Config, direct ...*rest.Config) (*Load, error) {
	l := &Load{Ledger: judge.NewLedger(), Seen: newSeen(), seed: seed}
	for _, config := range append([]*rest.Config{front}, direct...) {
		config = rest.CopyConfig(config)
		config.WarningHandler = rest.NoWarnings{}
		door, err := versioned.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", config.Host, err)
		}
		l.doors = append(l.doors, door)
	}
	return l, nil
}

// writer is one of them: it makes one write after the other.
type writer struct {
	*Load
	number int
	random *rand.Rand
	// api is where it writes, and where says it in words.
	api   client.IchorV1alpha1Interface
	where string
	steps int
}

// step makes one write, or finds that there is nothing to do.
type step func(w *writer, ctx context.Context) error

// cast says who writes what. Every third writer speaks to an ichor-apiserver itself.
func cast() []step {
	var out []step
	for _, role := range []struct {
		count int
		step  step
	}{
		{2, discover}, {4, approveControlPlane}, {1, moveLimit}, {1, approveWorker}, {1, remove},
		{3, writeStatus}, {2, apply}, {1, label}, {1, operate}, {1, setPassword}, {1, comeAndGo}, {2, countUp},
	} {
		for range role.count {
			out = append(out, role.step)
		}
	}
	return out
}

// Prepare makes what the writers change.
func (l *Load) Prepare(ctx context.Context) error {
	w := l.writer(99)
	if _, err := w.api.TalosClusters().Create(ctx, cluster(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the cluster: %w", err)
	}
	for n := range pool {
		if err := w.discoverMachine(ctx, n); err != nil {
			return fmt.Errorf("make machine %d: %w", n, err)
		}
	}
	if _, err := w.api.IchorUsers().Create(ctx, user(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the user: %w", err)
	}
	a := l.Ledger.Begin(judge.Counter, 99)
	made, err := w.api.TalosConfigPatches().Create(ctx, patch("counter", a.Marker, 0), metav1.CreateOptions{})
	l.Ledger.Settle(a, made, err)
	return err
}

// Run writes until the context ends.
func (l *Load) Run(ctx context.Context) {
	var group sync.WaitGroup
	for number, step := range cast() {
		group.Go(func() { l.writer(number).run(ctx, step) })
	}
	group.Wait()
}

func (l *Load) writer(number int) *writer {
	door, where := l.doors[0], "through the kube-apiserver"
	if number%3 == 2 {
		where = "of an ichor-apiserver"
		door = l.doors[1+number/3%(len(l.doors)-1)]
	}
	return &writer{Load: l, number: number, random: rand.New(rand.NewPCG(l.seed, uint64(number))), api: door.IchorV1alpha1(), where: where}
}

func (w *writer) run(ctx context.Context, step step) {
	for ctx.Err() == nil {
		// A write that was begun is waited for: its outcome is what the test is about.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestFor)
		err := step(w, call)
		cancel()
		w.steps++
		rest := time.Duration(w.random.Int64N(int64(2 * pace)))
		if err != nil && judge.OutcomeOf(err) == judge.Unknown {
			rest += breath
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// settle notes what came of a write.
func (w *writer) settle(a *judge.Attempt, answered metav1.Object, err error) error {
	if err != nil {
		answered = nil
		w.Seen.note(w.where, err)
	}
	w.Ledger.Settle(a, answered, err)
	return err
}

// readBackSome reads what was just acknowledged from any server: it must be at least as new. An answer that doesn't come
// says nothing.
func (w *writer) readBackSome(key string, written metav1.Object, read func(client.IchorV1alpha1Interface) (metav1.Object, error)) {
	if w.random.IntN(100) >= readBack {
		return
	}
	door := w.doors[w.random.IntN(len(w.doors))].IchorV1alpha1()
	got, err := read(door)
	switch {
	case apierrors.IsNotFound(err):
		w.Ledger.Fault("%s was acknowledged with resourceVersion %s, and a read afterwards doesn't find it", key, written.GetResourceVersion())
	case err != nil: // what was acknowledged may be there all the same
	case older(got.GetResourceVersion(), written.GetResourceVersion()):
		w.Ledger.Fault("%s was acknowledged with resourceVersion %s, and a read afterwards gives %s", key, written.GetResourceVersion(), got.GetResourceVersion())
	}
}

// older compares resourceVersions, which are etcd's revisions here.
func older(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }
