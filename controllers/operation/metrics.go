// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	stepsTaken = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "ichor_operation_steps_total", StabilityLevel: metrics.ALPHA,
		Help: "Steps of operations that got into a state, by the operation's type, the step and the state.",
	}, []string{"type", "step", "state"})
	phasesReached = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "ichor_operation_phases_total", StabilityLevel: metrics.ALPHA,
		Help: "Operations that got into a phase, by the operation's type.",
	}, []string{"type", "phase"})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(stepsTaken, phasesReached) })
