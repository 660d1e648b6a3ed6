// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/chaos/faults"
	"maesh.dev/ichor/test/chaos/judge"
	"maesh.dev/ichor/test/chaos/load"
	"maesh.dev/ichor/test/chaos/world"
)

// Options say how long and how hard to attack.
type Options struct {
	// Dir takes data and logs, Bin has the programs.
	Dir, Bin string
	// Seed decides about faults and writes; their times depend on the computer too.
	Seed uint64
	// For is how long the attack lasts, Pause the mean time between two faults of one side, Longest how long one lasts at
	// most.
	For, Pause, Longest time.Duration
	// Calm is how long the load runs before anything is done to it, and Idle how long everything rests at the end.
	Calm, Idle time.Duration
	// Progress is told what happens.
	Progress func(format string, args ...any)
}

// recoverFor bounds how long everything may take to be well again once all faults are undone: connections that fell
// silent are noticed after 45 s, and clients wait up to 30 s between two tries.
const recoverFor = 4 * time.Minute

// Result is what a run has shown.
type Result struct {
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"attackSeconds"`
	Writers int     `json:"writers"`
	// Acknowledged, Refused and Unknown count the writes.
	Acknowledged int `json:"acknowledged"`
	Refused      int `json:"refused"`
	Unknown      int `json:"unknown"`
	// Ready is how many seconds after the end of the attack every server was ready.
	Ready    float64        `json:"readyAfterSeconds"`
	Verdict  judge.Verdict  `json:"verdict"`
	Faults   []faults.Event `json:"faults"`
	Watchers []*Watcher     `json:"watchers"`
	// Before and After are the servers' sizes.
	Before []world.Size `json:"before"`
	After  []world.Size `json:"after"`
	// Seen is what clients were told.
	Seen []load.Kind `json:"seen"`
}

// Run attacks the API. An error is something that kept it from judging; what is wrong is in the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	o.Progress("seed %d", o.Seed)
	w, err := world.Start(ctx, o.Dir, o.Bin)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	o.Progress("%d members of etcd, the kube-apiserver and %d ichor-apiservers are up", world.Members, world.Replicas)
	r := &run{Options: o, world: w, result: &Result{Seed: o.Seed, Writers: load.Writers}}
	if r.load, err = load.New(o.Seed, w.Config(), w.Direct(0), w.Direct(1), w.Direct(2)); err != nil {
		return nil, err
	}
	watching, end := context.WithCancel(ctx)
	defer end()
	for _, step := range []func(context.Context) error{
		r.load.Prepare, func(context.Context) error { return r.watch(watching) }, r.attack, r.recover, r.judge,
	} {
		if err := step(ctx); err != nil {
			return r.result, err
		}
	}
	return r.result, nil
}

type run struct {
	Options
	world  *world.World
	load   *load.Load
	result *Result
}

// watch starts informers through the kube-apiserver and on every ichor-apiserver.
func (r *run) watch(ctx context.Context) error {
	first, err := watch(ctx, "through the kube-apiserver", r.world.Config())
	if err != nil {
		return err
	}
	r.result.Watchers = append(r.result.Watchers, first)
	for n := range world.Replicas {
		each, err := watch(ctx, "of "+world.IchorName(n), r.world.Direct(n))
		if err != nil {
			return err
		}
		r.result.Watchers = append(r.result.Watchers, each)
	}
	return nil
}

// attack lets everybody write, first in peace, and then attacks.
func (r *run) attack(ctx context.Context) (err error) {
	writing, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.load.Run(writing)
	}()
	linger(ctx, r.Calm)
	if r.result.Before, err = r.sizes(ctx); err != nil {
		return err
	}
	r.Progress("%d writers write; the attack lasts %s", load.Writers, r.For)
	begin := time.Now()
	attacking, end := context.WithTimeout(ctx, r.For)
	defer end()
	r.result.Faults, err = faults.Attack(attacking, r.world, r.Seed, r.Pause, r.Longest)
	r.result.Seconds = time.Since(begin).Seconds()
	err = errors.Join(err, r.world.Mend())
	stop()
	<-done
	return err
}

// recover waits until everything is well again.
func (r *run) recover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recoverFor)
	defer cancel()
	since := time.Now()
	if err := r.world.AwaitReady(ctx); err != nil {
		return err
	}
	r.result.Ready = time.Since(since).Seconds()
	r.Progress("every server is ready %.1f s after the attack", r.result.Ready)
	client, err := versioned.NewForConfig(r.world.Config())
	if err != nil {
		return err
	}
	for _, each := range r.result.Watchers {
		if err := each.catchUp(ctx, client, since); err != nil {
			r.load.Ledger.Fault("%v", err)
		}
	}
	linger(ctx, r.Idle)
	for _, each := range r.result.Watchers {
		each.idle()
	}
	r.result.After, err = r.sizes(ctx)
	return err
}

func (r *run) sizes(ctx context.Context) ([]world.Size, error) {
	var out []world.Size
	for n := range world.Replicas {
		size, err := r.world.SizeOf(ctx, n)
		if err != nil {
			return nil, err
		}
		out = append(out, size)
	}
	return out, nil
}

// judge goes through every revision that etcd has seen.
func (r *run) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recoverFor)
	defer cancel()
	r.result.Acknowledged, r.result.Refused, r.result.Unknown = r.load.Ledger.Count()
	r.result.Seen = r.load.Seen.Kinds()
	etcd, err := r.world.EtcdClient()
	if err != nil {
		return err
	}
	defer etcd.Close() //nolint:errcheck // what matters was read
	if err := r.judgePassword(ctx, etcd); err != nil {
		return err
	}
	judge := judge.New(r.load.Ledger)
	if err := replay(ctx, etcd, judge); err != nil {
		return err
	}
	r.result.Verdict = judge.Close()
	return nil
}

// replay shows the judge every change of Ichor's objects since the world's first revision, in order.
func replay(ctx context.Context, etcd *clientv3.Client, j *judge.Judge) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	end, err := etcd.Put(ctx, world.Prefix+"-end", "") // so that the watch has something to end at
	if err != nil {
		return fmt.Errorf("mark the end of the history: %w", err)
	}
	for response := range etcd.Watch(ctx, world.Prefix, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithFragment()) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("go through the history: %w", err)
		}
		for _, event := range response.Events {
			if event.Kv.ModRevision >= end.Header.Revision {
				return nil
			}
			e := judge.Event{Key: strings.TrimPrefix(string(event.Kv.Key), world.Prefix+"/"), Revision: event.Kv.ModRevision}
			if event.Type != clientv3.EventTypeDelete {
				e.Value = event.Kv.Value
			}
			j.See(e)
		}
	}
	return fmt.Errorf("the history ended early: %w", context.Cause(ctx))
}

func linger(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
