// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// reaped counts what became of slots that nobody seemed to stand behind.
var reaped = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "ichor", Name: "controlplane_slots_reaped_total", StabilityLevel: metrics.ALPHA,
	Help: "Slots of control planes that were looked at because no approved machine was known to stand behind them, by result: freed, kept, failed.",
}, []string{"result"})

func init() { legacyregistry.MustRegister(reaped) }

func countReaped(freed bool, err error) {
	result := "kept"
	switch {
	case err != nil:
		result = "failed"
	case freed:
		result = "freed"
	}
	reaped.WithLabelValues(result).Inc()
}
