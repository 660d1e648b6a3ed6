// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/localstack"
)

// rack is the label that the machines are approved by.
const rackKey, rackValue = "bench.ichor.maesh.dev/rack", "1"

// systemDisk is where the machines are installed: the one that each of them has.
const systemDisk = "/dev/nvme0n1"

// stopFor bounds the end of the stack.
const stopFor = 3 * time.Minute

// say tells what happens, with the seconds since the beginning.
func say(begin time.Time, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}

// measure runs everything once.
func measure(ctx context.Context, s settings) (f *figures, err error) {
	begin := time.Now()
	stack, err := startStack(ctx, s, begin)
	if err != nil {
		return nil, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopFor)
		defer cancel()
		err = errors.Join(err, stack.Stop(ending))
	}()
	b := &bench{settings: s, stack: stack, begin: begin, figures: &figures{}}
	watching, stopWatching := context.WithCancel(ctx)
	if b.seen, err = observe(watching, fast(stack.Admin()), addressesOf(stack)); err != nil {
		stopWatching()
		return nil, err
	}
	defer b.seen.stop()
	defer stopWatching()
	steps := []func(context.Context) error{b.discover, b.label, b.lengthenLeases, b.provision, b.allowConfigured, b.rest, b.configure, b.weigh}
	if s.operations {
		steps = []func(context.Context) error{b.discover, b.label, b.lengthenLeases, b.provision, b.rebootAll, b.planMany}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return b.figures, nil
}

type bench struct {
	settings
	stack   *localstack.Stack
	begin   time.Time
	seen    *observer
	figures *figures
}

// fast lifts the limit that a client sets itself: what is measured isn't the benchmark's own patience.
func fast(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = -1, -1
	return config
}

// discover switches the machines on and has them found by one scan.
func (b *bench) discover(ctx context.Context) error {
	say(b.begin, "switching %d workers on", b.machines)
	if err := switchOn(ctx, b.stack); err != nil {
		return err
	}
	if err := b.profileFor(ctx, "discovery", func() error {
		say(b.begin, "looking for them")
		start := time.Now()
		if err := b.ichor(ctx, "scan.log", "cluster", "discovery", "scan", "--wait"); err != nil {
			return err
		}
		err := until(ctx, "every machine is found", func(context.Context) (bool, error) { return b.seen.count(found) >= b.machines, nil })
		b.figures.discovery = time.Since(start)
		return err
	}); err != nil {
		return err
	}
	say(b.begin, "%d machines found within %.1f s", b.machines, b.figures.discovery.Seconds())
	return nil
}

// label puts the machines into a rack, as an operator would, and lets the cluster have them on their way together.
func (b *bench) label(ctx context.Context) error {
	client, err := versioned.NewForConfig(fast(b.stack.Admin()))
	if err != nil {
		return fmt.Errorf("label machines: %w", err)
	}
	if err := allow(ctx, client, b.parallel); err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, name := range b.seen.names() {
		group.Go(func() error {
			labels := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, rackKey, rackValue)
			_, err := client.IchorV1alpha1().TalosMachines().Patch(inner, name, types.MergePatchType, labels, metav1.PatchOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("label machines: %w", err)
	}
	return nil
}

// allow says how many machines may be on their way, or be configured, at a time.
func allow(ctx context.Context, client versioned.Interface, parallel int) error {
	patch := fmt.Appendf(nil, `{"spec":{"apply":{"maxParallel":%d}}}`, parallel)
	if _, err := client.IchorV1alpha1().TalosClusters().Patch(ctx, localstack.ClusterName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set spec.apply.maxParallel: %w", err)
	}
	return nil
}

// provision approves them all with one command and waits until the last is Ready.
func (b *bench) provision(ctx context.Context) error {
	before, err := cpuTimes()
	if err != nil {
		return err
	}
	if b.figures.writesBefore, err = b.writes(); err != nil {
		return err
	}
	say(b.begin, "approving them")
	start := time.Now()
	return b.profileFor(ctx, "provisioning", func() error {
		group, inner := errgroup.WithContext(ctx)
		group.Go(func() error {
			err := b.ichor(inner, "approve.log", "machine", "approve", "--all", "-l", rackKey+"="+rackValue, "--role", "worker", "--install-disk", systemDisk, "--yes", "--wait=false")
			b.figures.approval = time.Since(start)
			say(b.begin, "the command took %.1f s", b.figures.approval.Seconds())
			return err
		})
		group.Go(func() error { return b.awaitReady(inner) })
		if err := group.Wait(); err != nil {
			return err
		}
		b.figures.provisioning = b.seen.last(ready).Sub(start)
		b.figures.overhead = b.seen.between(begun, joined)
		after, err := cpuTimes()
		if err != nil {
			return err
		}
		b.figures.cpu = difference(before, after)
		b.figures.writesAfter, err = b.writes()
		return err
	})
}

// tellEvery is the time between two words about the progress.
const tellEvery = 10 * time.Second

func (b *bench) awaitReady(ctx context.Context) error {
	told := time.Now()
	return until(ctx, "every machine is Ready", func(context.Context) (bool, error) {
		n := b.seen.count(ready)
		if time.Since(told) > tellEvery {
			told = time.Now()
			say(b.begin, "%d approved, %d begun, %d joined, %d ready; controller %s", b.seen.count(approved), b.seen.count(begun), b.seen.count(joined), n, b.memory())
		}
		return n >= b.machines, nil
	})
}

func (b *bench) memory() string {
	peak, err := peakMemory(b.stack.Controllers()[0].PID())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.0f MiB", peak)
}

// weigh reads the controller's memory at the end: the kernel remembers the peak.
func (b *bench) weigh(context.Context) (err error) {
	controller := b.stack.Controllers()[0]
	if starts := controller.Starts(); starts != 1 {
		return fmt.Errorf("the controller was started %d times; its log is %s", starts, b.stack.Dir().Log(controller.Name))
	}
	b.figures.memory, err = peakMemory(controller.PID())
	return err
}

// writes are what the controller has written so far, by the audit log of the control plane's kube-apiserver, through
// which everything goes.
func (b *bench) writes() (writes, error) {
	logs, err := filepath.Glob(filepath.Join(b.stack.Dir().Machines(), b.stack.First().Name, "logs", "audit*.log"))
	if err != nil {
		return nil, fmt.Errorf("find audit logs: %w", err)
	}
	if len(logs) == 0 {
		return nil, errors.New("find audit logs: there are none")
	}
	return readWrites(logs...)
}
