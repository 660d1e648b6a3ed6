// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// askTimeout bounds the question to one control plane.
const askTimeout = 15 * time.Second

// answer is what one control plane's etcd says. It lists members only while there is a quorum.
type answer struct {
	machine *v1alpha1.TalosMachine
	members []talos.EtcdMember
	err     error
}

// checkEtcd asks the etcd of every control plane that should have one for the members.
func (c *Controller) checkEtcd(ctx context.Context, cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) {
	askable := controlPlanes(machines)
	if len(askable) == 0 {
		set(cluster, v1alpha1.ConditionEtcdHealthy, metav1.ConditionUnknown, reasonNoControlPlane, "no control plane is known that could be asked")
		return
	}
	credentials, err := c.Credentials.CredentialsFor(ctx, cluster.Name)
	if err != nil {
		set(cluster, v1alpha1.ConditionEtcdHealthy, metav1.ConditionUnknown, reasonNoAnswer, "the control planes can't be asked: "+err.Error())
		return
	}
	answers := make([]answer, len(askable))
	var running sync.WaitGroup
	for i, m := range askable {
		running.Go(func() { answers[i] = c.ask(ctx, m, credentials) })
	}
	running.Wait()
	judgeEtcd(cluster, answers, machines)
}

// controlPlanes are the approved control planes that have been configured: with the gate there are at most ten.
func controlPlanes(machines []*v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	var mine []*v1alpha1.TalosMachine
	for _, m := range machines {
		configured := m.Spec.Origin == v1alpha1.MachineAdopted || m.Status.Provisioning != nil && m.Status.Provisioning.AppliedAt != nil
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.Spec.Role == v1alpha1.RoleControlPlane && configured {
			mine = append(mine, m)
		}
	}
	return mine
}

func (c *Controller) ask(ctx context.Context, m *v1alpha1.TalosMachine, credentials talos.Credentials) answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var errs []error
	for _, address := range addresses(m) {
		node, err := c.Dialer.DialConfigured(ctx, address, credentials)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		members, err := node.EtcdMembers(ctx)
		_ = node.Close()
		if err == nil {
			return answer{machine: m, members: members}
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no address is known"))
	}
	return answer{machine: m, err: errors.Join(errs...)}
}

// addresses to ask a control plane at: where it was reached last, and where it is declared to be.
func addresses(m *v1alpha1.TalosMachine) []netip.Addr {
	var out []netip.Addr
	for _, text := range append(slices.Clone(m.Status.Addresses[:min(len(m.Status.Addresses), 2)]), m.Spec.Address) {
		if address, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, address) {
			out = append(out, address)
		}
	}
	return out
}

// judgeEtcd writes the members and whether enough of the voters answered.
func judgeEtcd(cluster *v1alpha1.TalosCluster, answers []answer, machines []*v1alpha1.TalosMachine) {
	var members []talos.EtcdMember
	answered := map[string]bool{}
	var silent []string
	for _, each := range answers {
		if each.err != nil || len(each.members) == 0 {
			silent = append(silent, each.machine.Name)
			continue
		}
		answered[each.machine.Name] = true
		if members == nil {
			members = each.members
		}
	}
	if members == nil {
		set(cluster, v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, reasonNoAnswer, "etcd of no control plane lists its members, so it has no quorum or can't be reached: "+strings.Join(silent, ", "))
		return
	}
	voters, healthy := 0, 0
	var listed []v1alpha1.EtcdMember
	for _, member := range members {
		machine := machineOf(member, machines)
		listed = append(listed, v1alpha1.EtcdMember{ID: strconv.FormatUint(member.ID, 16), Hostname: member.Hostname, Learner: member.Learner, Machine: machine})
		if member.Learner {
			continue
		}
		voters++
		if answered[machine] {
			healthy++
		}
	}
	slices.SortFunc(listed, func(a, b v1alpha1.EtcdMember) int { return strings.Compare(a.ID, b.ID) })
	cluster.Status.EtcdMembers = listed
	message := fmt.Sprintf("%d of %d voters answer", healthy, voters)
	if len(silent) > 0 {
		message += "; no answer from " + strings.Join(silent, ", ")
	}
	// A list is only given with a quorum; members that Ichor has no machine for can't be asked and may well be healthy.
	set(cluster, v1alpha1.ConditionEtcdHealthy, metav1.ConditionTrue, reasonQuorum, message)
}

// machineOf is the machine that runs a member, by hostname; empty if Ichor knows none.
func machineOf(member talos.EtcdMember, machines []*v1alpha1.TalosMachine) string {
	if member.Hostname == "" {
		return ""
	}
	for _, m := range machines {
		if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}
		if m.Status.Hostname == member.Hostname || m.Status.NodeName == member.Hostname || m.Spec.Hostname == member.Hostname {
			return m.Name
		}
	}
	return ""
}
