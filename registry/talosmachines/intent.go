// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// intent is what a request for an approval asked for, before any admission policy or webhook changed it.
type intent struct {
	asked *ichor.TalosMachineSpec
}

type intentKey struct{}

func withIntent(ctx context.Context) (context.Context, *intent) {
	i := &intent{}
	return context.WithValue(ctx, intentKey{}, i), i
}

// ObserveBeforeAdmission is called with each object just before mutating admission. It notes what the approver asked
// for, so that a decision which admission turned into another can be told from one that a person took.
func ObserveBeforeAdmission(ctx context.Context, obj runtime.Object) {
	i, ok := ctx.Value(intentKey{}).(*intent)
	if !ok {
		return
	}
	if machine, ok := obj.(*ichor.TalosMachine); ok {
		i.asked = machine.Spec.DeepCopy()
	}
}
