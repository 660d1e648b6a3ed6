// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strings"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Cluster is all about one cluster on one screen. Next are the lines about what to do, ready-made.
func Cluster(cluster *v1alpha1.TalosCluster, next []string, now time.Time, style Style) string {
	p := &page{style: style}
	p.line(style.Heading(cluster.Name))
	p.block("Wanted", wanted(&cluster.Spec, style))
	machines := &fields{}
	clusterMachines(cluster, machines, style)
	p.block("Machines", machines.lines(style, gap))
	p.block("Control-plane slots", slots(cluster, now))
	p.block("etcd", etcd(cluster, style))
	p.block("Discovery", Discovery(cluster, style))
	p.block("Conditions", Conditions(cluster.Status.Conditions, now, style))
	p.block("Next", indented(next))
	return p.text.String()
}

func wanted(spec *v1alpha1.TalosClusterSpec, style Style) []string {
	list := &fields{}
	list.add("Kubernetes API", fmt.Sprintf("https://%s:%d", spec.ControlPlane.Endpoint.Host, spec.ControlPlane.Endpoint.Port))
	list.add("Versions", fmt.Sprintf("Talos %s, Kubernetes %s", spec.TalosVersion, spec.KubernetesVersion))
	list.add("Control planes", fmt.Sprintf("%d", spec.ControlPlane.Count))
	list.add("Pods", strings.Join(spec.Network.PodCIDRs, ", "))
	list.add("Services", strings.Join(spec.Network.ServiceCIDRs, ", "))
	if spec.CNI.Cilium != nil {
		list.add("Network plugin", "Cilium "+spec.CNI.Cilium.Version)
	}
	list.add("Secrets", fmt.Sprintf("Secret %s/%s, %s", spec.SecretsRef.Namespace, spec.SecretsRef.Name, spec.SecretsPolicy))
	return list.lines(style, gap)
}

func clusterMachines(cluster *v1alpha1.TalosCluster, list *fields, style Style) {
	machines, controlPlanes := cluster.Status.Machines, cluster.Status.ControlPlanes
	list.add("Control planes", ratio(controlPlanes.Ready, cluster.Spec.ControlPlane.Count, style)+
		fmt.Sprintf(" ready, %d approved, at most %d", controlPlanes.Approved, controlPlanes.Limit))
	list.add("Workers", ratio(machines.WorkersReady, machines.Workers, style)+" ready")
	list.add("Others", fmt.Sprintf("%d pending, %d rejected", machines.Pending, machines.Rejected))
}

func ratio(have, want int32, style Style) string {
	text := fmt.Sprintf("%d of %d", have, want)
	if have < want {
		return style.Wait(text)
	}
	return style.Good(text)
}

func slots(cluster *v1alpha1.TalosCluster, now time.Time) []string {
	rows := make([][]string, 0, len(cluster.Status.ControlPlaneSlots))
	for _, slot := range cluster.Status.ControlPlaneSlots {
		rows = append(rows, []string{orNone(slot.Hostname), slot.Name, Age(now, slot.At.Time)})
	}
	return indented(Columns(rows))
}

func etcd(cluster *v1alpha1.TalosCluster, style Style) []string {
	members := cluster.Status.EtcdMembers
	if len(members) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(members))
	voters := 0
	for _, member := range members {
		kind := "voter"
		if member.Learner {
			kind = style.Wait("learner")
		} else {
			voters++
		}
		machine := member.Machine
		if machine == "" {
			machine = style.Bad("no machine of Ichor's")
		}
		rows = append(rows, []string{member.Hostname, member.ID, kind, machine})
	}
	return append(indented(Columns(rows)), gap+Quorum(voters))
}

// Quorum says in words how many voters may fail.
func Quorum(voters int) string {
	return fmt.Sprintf("%s, tolerates the loss of %d", Plural(voters, "voter", "voters"), max(voters-1, 0)/2)
}

// Discovery is where a cluster looks for machines, and what it met.
func Discovery(cluster *v1alpha1.TalosCluster, style Style) []string {
	spec, status := &cluster.Spec.Discovery, &cluster.Status.Discovery
	subnets := make([]string, 0, len(spec.Subnets))
	for _, subnet := range spec.Subnets {
		subnets = append(subnets, subnet.CIDR)
	}
	list := &fields{}
	list.add("Subnets", orNone(strings.Join(subnets, ", ")))
	list.add("Addresses", orNone(strings.Join(spec.Addresses, ", ")))
	list.add("Every", spec.Interval.Duration.String())
	list.add("State", discoveryState(cluster))
	if status.Total > 0 {
		list.add("Met", fmt.Sprintf("%d in maintenance, %d already configured, %d not Talos, %d silent",
			status.Maintenance, status.AlreadyConfigured, status.NotTalos, status.Unreachable))
	}
	rows := make([][]string, 0, len(status.Hosts))
	for _, host := range status.Hosts {
		rows = append(rows, []string{host.Address, string(host.Class), host.Message})
	}
	if len(rows) > 0 {
		list.addLines("Odd ones", Columns(rows))
	}
	return list.lines(style, gap)
}

func discoveryState(cluster *v1alpha1.TalosCluster) string {
	status := &cluster.Status.Discovery
	switch {
	case status.Phase == v1alpha1.DiscoveryScanning:
		return fmt.Sprintf("scanning, %d of %s done", status.Done, Plural(int(status.Total), "address", "addresses"))
	case status.Phase == "" && status.Total == 0:
		return "not scanned yet"
	case status.ObservedGeneration < cluster.Generation:
		return fmt.Sprintf("idle; the last scan (%s) is older than the latest change", Plural(int(status.Total), "address", "addresses"))
	default:
		return fmt.Sprintf("idle; the last scan looked at %s", Plural(int(status.Total), "address", "addresses"))
	}
}
