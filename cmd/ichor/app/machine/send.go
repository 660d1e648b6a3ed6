// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// conflictRetries bounds how often an approval is sent again because the object moved under it.
const conflictRetries = 5

// send approves the machine as it was shown. The server refuses an object that moved on; where nothing moved that was
// shown (the controller wrote that it is still reachable, say), the same decision is sent for the object as it is now.
func (o *approveOptions) send(ctx context.Context, plan plan) (*v1alpha1.TalosMachine, error) {
	ctx = aboutMachine(ctx, plan.machine.Name)
	machines := o.client.IchorV1alpha1().TalosMachines()
	options := metav1.UpdateOptions{DryRun: o.dryRun.Options(), FieldManager: cli.FieldManager}
	shown := plan.machine
	for attempt := 1; ; attempt++ {
		machine, err := machines.UpdateApproval(ctx, shown.Name, plan.decision.Approve(shown), options)
		if err == nil || !apierrors.IsConflict(err) {
			return machine, err
		}
		now, getErr := machines.Get(ctx, shown.Name, metav1.GetOptions{})
		if getErr != nil {
			return nil, getErr
		}
		if moved := movedOn(plan.machine, now); len(moved) > 0 {
			return nil, fmt.Errorf("it changed since it was shown, nothing was approved: %s; look again with `%s machine show %s`",
				strings.Join(moved, "; "), o.env.Name, shown.Name)
		}
		if now.ResourceVersion == shown.ResourceVersion || attempt == conflictRetries {
			return nil, err
		}
		shown = now
	}
}

// movedOn lists what a person was shown and that isn't so any more.
func movedOn(shown, now *v1alpha1.TalosMachine) []string {
	var moved []string
	if shown.UID != now.UID {
		moved = append(moved, "the object was deleted and made anew")
	}
	if before, after := shown.Status.MaintenanceFingerprint, now.Status.MaintenanceFingerprint; before != after {
		moved = append(moved, fmt.Sprintf("its fingerprint was %s and is %s now (a reboot makes a new one, and so does another machine in its place)", before, after))
	}
	if now.Spec.ApprovalState != shown.Spec.ApprovalState {
		moved = append(moved, fmt.Sprintf("it was %s meanwhile%s", now.Spec.ApprovalState, approvedBy(now)))
	} else if !apiequality.Semantic.DeepEqual(shown.Spec, now.Spec) {
		moved = append(moved, "its spec was changed")
	}
	if !apiequality.Semantic.DeepEqual(shown.Status.Inventory, now.Status.Inventory) {
		moved = append(moved, "its disks, network interfaces or other hardware are different")
	}
	if before, after := doubt(shown), doubt(now); before != after {
		moved = append(moved, "its identity is in doubt: "+after)
	}
	return moved
}

func doubt(machine *v1alpha1.TalosMachine) string {
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionIdentityResolved)
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return ""
	}
	return condition.Message
}
