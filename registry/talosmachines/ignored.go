// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// warnOfIgnored tells a writer of the main resource of what he sent and what stays as it was: a decision goes through
// the subresource "approval", a word on the identity through "identity".
func warnOfIgnored(ctx context.Context, obj, old runtime.Object) {
	machine, ok := obj.(*ichor.TalosMachine)
	was, same := old.(*ichor.TalosMachine)
	if !ok || !same || was.UID == "" {
		return
	}
	for _, decided := range []struct {
		field     string
		sent, was any
		door      string
	}{
		{"spec.approvalState", machine.Spec.ApprovalState, was.Spec.ApprovalState, "approval"},
		{"spec.approval", machine.Spec.Approval, was.Spec.Approval, "approval"},
		{"spec.role", machine.Spec.Role, was.Spec.Role, "approval"},
		{"spec.hostname", machine.Spec.Hostname, was.Spec.Hostname, "approval"},
		{"spec.nodeLabels", machine.Spec.NodeLabels, was.Spec.NodeLabels, "approval"},
		{"spec.disks", machine.Spec.Disks, was.Spec.Disks, "approval"},
		{"spec.network", machine.Spec.Network, was.Spec.Network, "approval"},
		{"spec.identityResolution", machine.Spec.IdentityResolution, was.Spec.IdentityResolution, "identity"},
	} {
		if !apiequality.Semantic.DeepEqual(decided.sent, decided.was) {
			warning.AddWarning(ctx, "", decided.field+": stays as it is; only talosmachines/"+decided.door+" changes it")
		}
	}
}
