// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func isReady(m *v1alpha1.TalosMachine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady)
}

// count writes how many machines there are of what kind. How many control planes are approved follows from the slots and
// is the API server's to write.
func count(cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) {
	var counts v1alpha1.MachineCounts
	ready := int32(0)
	for _, m := range machines {
		switch m.Spec.ApprovalState {
		case v1alpha1.ApprovalRejected:
			counts.Rejected++
			continue
		case v1alpha1.ApprovalApproved:
			counts.Approved++
		default:
			counts.Pending++
			continue
		}
		one := int32(0)
		if isReady(m) {
			one = 1
		}
		counts.Ready += one
		if m.Spec.Role == v1alpha1.RoleControlPlane {
			ready += one
		} else {
			counts.Workers++
			counts.WorkersReady += one
		}
	}
	cluster.Status.Machines = counts
	cluster.Status.ControlPlanes.Ready = ready
}

// surplus tells a person which control plane to remove once more are Ready than are wanted: the replacement has joined.
func surplus(cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) {
	var ready, oldest []string
	var first *v1alpha1.TalosMachine
	for _, m := range machines {
		if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}
		if isReady(m) {
			ready = append(ready, m.Name)
			if first == nil || m.CreationTimestamp.Time.Before(first.CreationTimestamp.Time) {
				first = m
			}
		} else {
			oldest = append(oldest, m.Name)
		}
	}
	want := int(cluster.Spec.ControlPlane.Count)
	if len(ready) <= want {
		set(cluster, v1alpha1.ConditionSurplusControlPlane, metav1.ConditionFalse, reasonAsWanted, fmt.Sprintf("%d control planes are Ready, %d are wanted", len(ready), want))
		return
	}
	advice := fmt.Sprintf("remove the one that is to be replaced; the oldest is %s", first.Name)
	if len(oldest) > 0 {
		advice = "remove the one that is not Ready: " + strings.Join(oldest, ", ")
	}
	set(cluster, v1alpha1.ConditionSurplusControlPlane, metav1.ConditionTrue, reasonSurplus, fmt.Sprintf("%d control planes are Ready, %d are wanted; %s", len(ready), want, advice))
}

// moving tells whether control planes are on their way or etcd isn't well, so that the next look should be soon.
func moving(cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) bool {
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy) {
		return true
	}
	for _, member := range cluster.Status.EtcdMembers {
		if member.Learner {
			return true
		}
	}
	for _, m := range machines {
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.Spec.Role == v1alpha1.RoleControlPlane && !isReady(m) {
			return true
		}
	}
	return false
}
