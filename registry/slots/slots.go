// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// Limit is the number of slots a cluster has: one more than it wants control planes, so that a replacement can join
// before the old one leaves.
func Limit(cluster *ichor.TalosCluster) int {
	return int(cluster.Spec.ControlPlane.Count) + 1
}

// Count writes the numbers that follow from the slots into the cluster's status. Every writer of a cluster calls it, so
// that they are never what a client sent.
func Count(cluster *ichor.TalosCluster) {
	cluster.Status.ControlPlanes.Approved = int32(len(cluster.Status.ControlPlaneSlots))
	cluster.Status.ControlPlanes.Limit = int32(Limit(cluster))
}

// Holders are the names of the machines that hold slots, with their hostnames where they have one.
func Holders(cluster *ichor.TalosCluster) []string {
	var names []string
	for _, slot := range cluster.Status.ControlPlaneSlots {
		name := slot.Name
		if slot.Hostname != "" {
			name += " (" + slot.Hostname + ")"
		}
		names = append(names, name)
	}
	return names
}

// find returns the slot of a machine.
func find(cluster *ichor.TalosCluster, machine types.UID) *ichor.ControlPlaneSlot {
	i := slices.IndexFunc(cluster.Status.ControlPlaneSlots, func(s ichor.ControlPlaneSlot) bool { return s.MachineUID == machine })
	if i < 0 {
		return nil
	}
	return &cluster.Status.ControlPlaneSlots[i]
}

// ofName returns the slot of a machine of that name, which may be another than is meant.
func ofName(cluster *ichor.TalosCluster, name string) *ichor.ControlPlaneSlot {
	i := slices.IndexFunc(cluster.Status.ControlPlaneSlots, func(s ichor.ControlPlaneSlot) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &cluster.Status.ControlPlaneSlots[i]
}

// hostnameHolder returns the slot of another machine that has the hostname.
func hostnameHolder(cluster *ichor.TalosCluster, machine types.UID, hostname string) *ichor.ControlPlaneSlot {
	if hostname == "" {
		return nil
	}
	i := slices.IndexFunc(cluster.Status.ControlPlaneSlots, func(s ichor.ControlPlaneSlot) bool {
		return s.MachineUID != machine && s.Hostname == hostname
	})
	if i < 0 {
		return nil
	}
	return &cluster.Status.ControlPlaneSlots[i]
}
