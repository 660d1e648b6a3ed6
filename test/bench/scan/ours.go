// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"maesh.dev/ichor/controllers/discovery"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/talos"
)

// scanTask is the task of the process that runs Ichor's search.
type scanTask struct {
	Network netip.Prefix
	// Concurrency is how many addresses are looked at at a time, Rate how many packets a second ask for a connection. 0 is
	// the product's default of the one, and no limit of the other.
	Concurrency int
	Rate        float64
}

func (t scanTask) limit() rate.Limit {
	if t.Rate == 0 {
		return rate.Inf
	}
	return rate.Limit(t.Rate)
}

// scanResult is how a search went.
type scanResult struct {
	// Classified is when the last address was, Took how long it was since the first connect.
	Classified time.Time
	Took       time.Duration
	// Reads is the time from there to the end of the scan without Written, the time that Writes writes to the API took.
	Reads, Written time.Duration
	Writes         int
	// Peak memory in MiB, over the whole scan.
	Peak   float64
	Status v1alpha1.DiscoveryStatus
}

// stopwatch times the real prober.
type stopwatch struct {
	talos.Prober
	total        int64
	begun, ended atomic.Int64
	first, last  time.Time
	done         chan struct{}
}

func (s *stopwatch) Probe(ctx context.Context, address netip.Addr) talos.Probe {
	if s.begun.Add(1) == 1 {
		s.first = time.Now()
	}
	probe := s.Prober.Probe(ctx, address)
	if s.ended.Add(1) == s.total {
		s.last = time.Now()
		close(s.done)
	}
	return probe
}

// gate keeps the real dialer back until every address is classified, so that reading machines isn't part of that time.
type gate struct {
	talos.Dialer
	open <-chan struct{}
}

func (g gate) DialMaintenance(ctx context.Context, address netip.Addr, pin talos.Fingerprint) (talos.MaintenanceNode, error) {
	select {
	case <-g.open:
		return g.Dialer.DialMaintenance(ctx, address, pin)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type noCredentials struct{}

func (noCredentials) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	return talos.Credentials{}, errors.New("the cluster of the benchmark has no credentials")
}

// newCluster is a cluster whose search looks at every address of a network, its name and broadcast address too, as other
// programs do.
func newCluster(network netip.Prefix) *v1alpha1.TalosCluster {
	last := target(network, 1<<(network.Addr().BitLen()-network.Bits())-1)
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "bench", UID: "bench", Generation: 1},
		Spec: v1alpha1.TalosClusterSpec{Discovery: v1alpha1.Discovery{
			Subnets:   []v1alpha1.DiscoverySubnet{{CIDR: network.String()}},
			Addresses: []string{network.Addr().String(), last.Addr().String()},
			Interval:  metav1.Duration{Duration: 24 * time.Hour},
		}},
	}
}

// scanOurs runs the controller's search until its first scan has ended.
func scanOurs(ctx context.Context, task scanTask) (scanResult, error) {
	api, err := newMemoryAPI(newCluster(task.Network))
	if err != nil {
		return scanResult{}, err
	}
	watch := &stopwatch{
		Prober: talos.NewProber(talos.ProbeOptions{}), done: make(chan struct{}),
		total: 1 << (task.Network.Addr().BitLen() - task.Network.Bits()),
	}
	factory := externalversions.NewSharedInformerFactory(api, 0)
	controller, err := discovery.New(discovery.Config{
		Client: api, Machines: factory.Ichor().V1alpha1().TalosMachines(), Clusters: factory.Ichor().V1alpha1().TalosClusters(),
		Dialer: gate{talos.NewDialer(talos.DialOptions{}), watch.done}, Prober: watch, Credentials: noCredentials{}, Recorder: &record.FakeRecorder{},
		Options: discovery.Options{Concurrency: task.Concurrency, Rate: task.limit()},
	})
	if err != nil {
		return scanResult{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	status := make(chan v1alpha1.DiscoveryStatus, 1)
	waited := make(chan error, 1)
	go func() {
		end, err := api.awaitScan(ctx)
		status <- end
		waited <- err
		cancel()
	}()
	factory.Start(ctx.Done())
	err = controller.Run(ctx, 1)
	ended := time.Now()
	factory.Shutdown()
	result := scanResult{Classified: watch.last, Took: watch.last.Sub(watch.first), Status: <-status}
	if err := cmp.Or(<-waited, err); err != nil {
		return scanResult{}, err
	}
	result.Writes, result.Written = api.written()
	result.Reads = ended.Sub(watch.last) - result.Written
	if result.Peak, err = peakMemory(); err != nil {
		return scanResult{}, err
	}
	if result.Status.Done != int32(watch.total) || watch.ended.Load() != watch.total {
		return scanResult{}, fmt.Errorf("%d of %d addresses were looked at, %d times in all", result.Status.Done, watch.total, watch.ended.Load())
	}
	return result, nil
}
