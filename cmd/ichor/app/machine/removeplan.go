// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/machineconfig"
)

// show tells what becomes of the machines, before anything is asked: which disks are wiped, and etcd's numbers.
func (o *removeOptions) show(ctx context.Context, client versioned.Interface, picked []*v1alpha1.TalosMachine) error {
	for _, machine := range picked {
		o.env.Infof("%s", screen.MachineTitle(machine))
		why, err := o.fate(machine)
		if err != nil {
			return err
		}
		o.env.Infof("  %s", why)
		if machine.Spec.Role != v1alpha1.RoleControlPlane || machine.Spec.ApprovalState != v1alpha1.ApprovalApproved || o.orphan {
			continue
		}
		cluster, err := client.IchorV1alpha1().TalosClusters().Get(ctx, machine.Spec.ClusterRef.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		default:
			o.env.Infof("  %s", etcdWithout(machine, cluster))
		}
	}
	return nil
}

// fate says what becomes of a machine's disks, by their serial numbers.
func (o *removeOptions) fate(machine *v1alpha1.TalosMachine) (string, error) {
	switch {
	case machine.Spec.ApprovalState != v1alpha1.ApprovalApproved:
		return fmt.Sprintf("it is %s: nothing is wiped, and it is found again", machine.Spec.ApprovalState), nil
	case o.orphan || machine.Spec.DeletionPolicy == v1alpha1.DeletionOrphan:
		return "it is left as it is, with its Node and its member of etcd: nothing is wiped", nil
	}
	disks, err := o.disks()
	if err != nil {
		return "", err
	}
	if machine.Spec.Removal != nil && len(disks) == 0 {
		disks = machine.Spec.Removal.WipeDisks
	}
	var devices []string
	for _, match := range disks {
		found := machineconfig.MatchDisks(match, machine.Status.Inventory)
		if len(found) != 1 {
			return "", cli.WithCode(cli.ExitBlocked, fmt.Errorf("%d disks of %s are the one with %s", len(found), screen.MachineTitle(machine), machineconfig.DescribeMatch(match)))
		}
		devices = append(devices, found[0].Device)
	}
	text := machineconfig.DescribeFates(machineconfig.Fates(machine.Spec.Disks, machine.Status.Inventory, machine.Status.SystemDisk, devices))
	if o.force {
		text += "; if it doesn't answer, nothing is wiped, and it is quarantined"
	}
	return text, nil
}

// etcdWithout says what is left of etcd without a control plane, as its cluster was last seen.
func etcdWithout(machine *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) string {
	voters, learners, others := 0, 0, 0
	for _, member := range cluster.Status.EtcdMembers {
		switch {
		case member.Learner:
			learners++
		case member.Machine != machine.Name:
			voters++
			others++
		default:
			voters++
		}
	}
	health := "isn't known to be healthy"
	if condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy); condition != nil {
		health = condition.Message
	}
	text := fmt.Sprintf("etcd has %s (%s); without this one %d stay, of which %d must be healthy", screen.Plural(voters, "voter", "voters"), health, others, others/2+1)
	if learners > 0 {
		text += fmt.Sprintf("; %s: nothing leaves until they vote", screen.Plural(learners, "learner", "learners"))
	}
	return text
}
