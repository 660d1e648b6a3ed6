// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Reasons of the condition MachinesQuarantined.
const (
	reasonCameBack = "CameBack"
	reasonAway     = "Away"
)

// Cordoner keeps new pods away from Nodes, and gives the Nodes back.
type Cordoner interface {
	Cordon(ctx context.Context, node string, by types.UID) (byUs bool, err error)
	Uncordon(ctx context.Context, node string, by types.UID) error
}

// quarantine looks after machines that were removed without being wiped. One that comes back still has the cluster's
// configuration, so its kubelet makes its Node anew: no pods are to go there, and a person is told. It ends when a person
// has approved the machine again.
func (c *Controller) quarantine(ctx context.Context, cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) error {
	var held []v1alpha1.QuarantinedMachine
	var back []string
	for _, q := range cluster.Status.Quarantined {
		if again := approvedAgain(&q, machines); again != nil {
			if again.Status.NodeName != "" {
				if err := c.Cordoner.Uncordon(ctx, again.Status.NodeName, q.MachineUID); err != nil {
					return err
				}
			}
			continue
		}
		held = append(held, q)
		signs, err := c.signsOf(ctx, cluster, &q, machines)
		if err != nil {
			return err
		}
		if len(signs) > 0 {
			back = append(back, fmt.Sprintf("machine %s, which %s gave up at %s, is back: %s", q.Name, q.By, q.At.UTC().Format(time.RFC3339), strings.Join(signs, ", ")))
		}
	}
	cluster.Status.Quarantined = held
	switch {
	case len(held) == 0:
		meta.RemoveStatusCondition(&cluster.Status.Conditions, v1alpha1.ConditionMachinesQuarantined)
	case len(back) == 0:
		set(cluster, v1alpha1.ConditionMachinesQuarantined, metav1.ConditionFalse, reasonAway, fmt.Sprintf("%d machines were removed without being wiped, and none was seen since", len(held)))
	default:
		set(cluster, v1alpha1.ConditionMachinesQuarantined, metav1.ConditionTrue, reasonCameBack, strings.Join(back, "; ")+
			". Nothing is written to it. Reset it by hand and approve it when it is found, or enter it as an adopted machine and approve that")
	}
	return nil
}

// approvedAgain is the machine that a quarantined one is by a person's word: approved anew, under whatever name.
func approvedAgain(q *v1alpha1.QuarantinedMachine, machines []*v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
	at := slices.IndexFunc(machines, func(m *v1alpha1.TalosMachine) bool {
		return m.UID != q.MachineUID && m.DeletionTimestamp == nil && m.Spec.ApprovalState == v1alpha1.ApprovalApproved &&
			identity.SameMachine(identity.Identity(m.Spec.Identity), identity.Identity(q.Identity))
	})
	if at < 0 {
		return nil
	}
	return machines[at]
}

// signsOf says where a quarantined machine shows itself, and cordons its Node.
func (c *Controller) signsOf(ctx context.Context, cluster *v1alpha1.TalosCluster, q *v1alpha1.QuarantinedMachine, machines []*v1alpha1.TalosMachine) (signs []string, err error) {
	for _, host := range cluster.Status.Discovery.Hosts {
		if host.Class == v1alpha1.HostQuarantined && strings.Contains(host.Message, q.Name) {
			signs = append(signs, "it answers at "+host.Address)
		}
	}
	node, err := c.nodeOf(ctx, q, machines)
	if err != nil || node == nil {
		return signs, err
	}
	if _, err := c.Cordoner.Cordon(ctx, node.Name, q.MachineUID); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return append(signs, fmt.Sprintf("Node %s is there again, and is cordoned", node.Name)), nil
}

// nodeOf is the Node that a quarantined machine's kubelet has made anew: not one of a machine that has its name now.
func (c *Controller) nodeOf(ctx context.Context, q *v1alpha1.QuarantinedMachine, machines []*v1alpha1.TalosMachine) (*corev1.Node, error) {
	if q.NodeName == "" || slices.ContainsFunc(machines, func(m *v1alpha1.TalosMachine) bool {
		return m.UID != q.MachineUID && m.Spec.ApprovalState == v1alpha1.ApprovalApproved && (m.Status.NodeName == q.NodeName || m.Spec.Hostname == q.NodeName)
	}) {
		return nil, nil
	}
	node, err := c.Nodes.Nodes().Get(ctx, q.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Node %s: %w", q.NodeName, err)
	}
	uuid := node.Status.NodeInfo.SystemUUID
	if node.DeletionTimestamp != nil || node.CreationTimestamp.Time.Before(q.At.Time) || uuid != "" && q.Identity.UUID != "" && !sameUUID(uuid, q.Identity.UUID) {
		return nil, nil
	}
	return node, nil
}

// sameUUID compares a UUID as the kernel reads it, which is what a kubelet reports, with one as Talos does: of some firmware,
// one of them has the first three groups in the other order of bytes (SMBIOS before 2.6).
func sameUUID(kernel, talos string) bool {
	kernel, talos = strings.ToLower(kernel), strings.ToLower(talos)
	return kernel == talos || swapped(kernel) == talos
}

// swapped turns the order of bytes around in the first three groups of a UUID.
func swapped(uuid string) string {
	groups := strings.Split(uuid, "-")
	for i := range min(len(groups), 3) {
		turned := ""
		for j := len(groups[i]) - 2; j >= 0; j -= 2 {
			turned += groups[i][j : j+2]
		}
		groups[i] = turned
	}
	return strings.Join(groups, "-")
}
