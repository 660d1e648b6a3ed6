// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"maesh.dev/ichor/pkg/talos"
)

// lastSeen is when each machine last answered. It is a metric because it changes all the time: an object that held it
// would be written at every look.
var lastSeen = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "ichor",
	Subsystem:      "machine",
	Name:           "last_seen_timestamp_seconds",
	Help:           "When the machine last answered, in seconds since 1970.",
	StabilityLevel: metrics.ALPHA,
}, []string{"machine"})

// sentTotal counts the configurations that were sent, by what became of them.
var sentTotal = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace:      "ichor",
	Subsystem:      "machine",
	Name:           "configurations_total",
	Help:           "Configurations sent to machines, by outcome: taken, refused, notSent or unknown.",
	StabilityLevel: metrics.ALPHA,
}, []string{"outcome"})

// registerMetrics makes the metrics known once, however many controllers a process holds.
var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(lastSeen, sentTotal) })

// countSent counts one configuration that was sent.
func countSent(err error) {
	outcome := "unknown"
	switch {
	case err == nil:
		outcome = "taken"
	case talos.IsRefusal(err):
		outcome = "refused"
	case talos.IsNotSent(err):
		outcome = "notSent"
	}
	sentTotal.WithLabelValues(outcome).Inc()
}
