// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// decisions counts what was decided.
var decisions = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace:      "ichor",
	Subsystem:      "kubelet_certificate",
	Name:           "decisions_total",
	Help:           "Requests of kubelets for serving certificates that were decided on, by decision: approved or denied.",
	StabilityLevel: metrics.ALPHA,
}, []string{"decision"})

// waiting is how many requests of machines are not right yet.
var waiting = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace:      "ichor",
	Subsystem:      "kubelet_certificate",
	Name:           "waiting",
	Help:           "Requests of kubelets of approved machines for serving certificates with a name or an address that isn't the machine's.",
	StabilityLevel: metrics.ALPHA,
})

// registerMetrics makes the metrics known once, however many controllers a process holds.
var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(decisions, waiting) })
