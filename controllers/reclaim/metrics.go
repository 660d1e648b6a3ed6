// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var phasesReached = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "ichor_reclaim_phases_total", StabilityLevel: metrics.ALPHA,
	Help: "MachineReclaims that got into a phase.",
}, []string{"phase"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(phasesReached) })
