// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/registry"
)

// scrapeTimeout bounds what one scrape may wait for the storage.
const scrapeTimeout = 5 * time.Second

var slotsDesc = metrics.NewDesc("ichor_controlplane_slots",
	"Slots of control planes of a cluster: held by approved machines and by approvals on their way, and free up to the limit of spec.controlPlane.count + 1.",
	[]string{"cluster", "state"}, nil, metrics.ALPHA, "")

// slotCollector reads the slots when it is scraped. Metrics are the process's; servers come and go within it.
type slotCollector struct {
	metrics.BaseStableCollector

	mu      sync.Mutex
	servers map[*registry.Registry]struct{}
}

var collector = sync.OnceValue(func() *slotCollector {
	c := &slotCollector{servers: map[*registry.Registry]struct{}{}}
	legacyregistry.CustomMustRegister(c)
	return c
})

// collect makes the server's slots part of the metrics until the context ends.
func (c *slotCollector) collect(ctx context.Context, resources *registry.Registry) {
	c.mu.Lock()
	c.servers[resources] = struct{}{}
	c.mu.Unlock()
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		delete(c.servers, resources)
		c.mu.Unlock()
	})
}

// DescribeWithStability describes the metric.
func (*slotCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- slotsDesc }

// CollectWithStability reads the slots of every cluster.
func (c *slotCollector) CollectWithStability(ch chan<- metrics.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	c.mu.Lock()
	var servers []*registry.Registry
	for server := range c.servers {
		servers = append(servers, server)
	}
	c.mu.Unlock()
	all := map[string]registry.SlotCount{}
	for _, server := range servers {
		counts, err := server.SlotCounts(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Slots of control planes can't be read for a scrape", "err", err)
			continue
		}
		for _, count := range counts {
			all[count.Cluster] = count
		}
	}
	for _, count := range all {
		ch <- metrics.NewLazyConstMetric(slotsDesc, metrics.GaugeValue, float64(count.Held), count.Cluster, "held")
		ch <- metrics.NewLazyConstMetric(slotsDesc, metrics.GaugeValue, float64(count.Free), count.Cluster, "free")
	}
}
