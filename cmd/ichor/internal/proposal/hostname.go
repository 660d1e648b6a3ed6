// SPDX-License-Identifier: Apache-2.0

package proposal

import (
	"fmt"
	"strconv"
	"strings"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// firstNames are what hostnames begin with in a cluster that has none yet.
var firstNames = map[v1alpha1.MachineRole]string{v1alpha1.RoleControlPlane: "cp-", v1alpha1.RoleWorker: "worker-"}

// Hostname carries on the numbering of a role's machines: after cp-1 and cp-3 comes cp-4, because a gap may be a machine
// that went and whose name still stands in someone's notes.
func Hostname(role v1alpha1.MachineRole, machines []v1alpha1.TalosMachine) string {
	prefix, highest, width := firstNames[role], 0, 1
	taken := map[string]bool{}
	for i := range machines {
		hostname := machines[i].Spec.Hostname
		taken[hostname] = true
		if machines[i].Spec.Role != role || machines[i].Spec.ApprovalState != v1alpha1.ApprovalApproved {
			continue
		}
		before := strings.TrimRight(hostname, "0123456789")
		digits := hostname[len(before):]
		if number, err := strconv.Atoi(digits); err == nil && number >= highest {
			prefix, highest, width = before, number, len(digits)
		}
	}
	for number := highest + 1; ; number++ {
		hostname := fmt.Sprintf("%s%0*d", prefix, width, number)
		if !taken[hostname] {
			return hostname
		}
	}
}

// Role proposes control planes until the cluster has as many as it wants, then workers.
func Role(cluster *v1alpha1.TalosCluster, machines []v1alpha1.TalosMachine) v1alpha1.MachineRole {
	if cluster == nil {
		return v1alpha1.RoleWorker
	}
	controlPlanes := int32(0)
	for i := range machines {
		if machines[i].Spec.ApprovalState == v1alpha1.ApprovalApproved &&
			machines[i].Spec.Role == v1alpha1.RoleControlPlane && machines[i].Spec.ClusterRef.Name == cluster.Name {
			controlPlanes++
		}
	}
	if controlPlanes < cluster.Spec.ControlPlane.Count {
		return v1alpha1.RoleControlPlane
	}
	return v1alpha1.RoleWorker
}
