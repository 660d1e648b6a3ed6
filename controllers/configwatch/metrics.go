// SPDX-License-Identifier: Apache-2.0

package configwatch

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// watching is how many machines have a watch, or one on its way.
var watching = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace:      "ichor",
	Subsystem:      "configuration_watch",
	Name:           "machines",
	Help:           "Machines whose running configuration is watched.",
	StabilityLevel: metrics.ALPHA,
})

// changes counts what was seen.
var changes = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "ichor",
	Subsystem:      "configuration_watch",
	Name:           "changes_total",
	Help:           "Configurations that a watch reported and that were not known before.",
	StabilityLevel: metrics.ALPHA,
})

// lost counts watches that ended, for whatever reason.
var lost = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "ichor",
	Subsystem:      "configuration_watch",
	Name:           "ended_total",
	Help:           "Watches of running configurations that ended, or couldn't begin, and are tried again.",
	StabilityLevel: metrics.ALPHA,
})

// registerMetrics makes the metrics known once, however many controllers a process holds.
var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(watching, changes, lost) })
