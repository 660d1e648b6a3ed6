// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/talos"
)

// register enters the cluster and its first machine into Ichor's API, the machine as adopted and approved.
func (r *run) register(ctx context.Context, access Access) error {
	clients, err := r.connect(access.Kubeconfig)
	if err != nil {
		return err
	}
	client := clients.ichor
	if err := r.retry(ctx, func(ctx context.Context) error { return r.ensureCluster(ctx, client) }); err != nil {
		return err
	}
	if err := r.readFacts(ctx); err != nil {
		return err
	}
	name, _ := identity.Name(identity.Identity(r.facts.Identity), r.reached.String())
	var machine *v1alpha1.TalosMachine
	for _, step := range []func(context.Context, versioned.Interface, string) (*v1alpha1.TalosMachine, error){
		r.ensureMachine, r.describeMachine, r.approveMachine,
	} {
		// A step that fails has no machine to go on with, and is tried again.
		err := r.retry(ctx, func(ctx context.Context) (err error) { machine, err = step(ctx, client, name); return err })
		if err != nil {
			return err
		}
	}
	r.registered = machine
	return nil
}

// retry tries until it works: an API that has just begun to be served isn't steady yet. What trying can't mend ends it.
func (r *run) retry(ctx context.Context, try func(context.Context) error) error {
	return r.poll(ctx, func(ctx context.Context) (bool, string, error) {
		err := try(ctx)
		if err == nil || isFinal(err) {
			return err == nil, "", err
		}
		return false, err.Error(), nil
	})
}

func (r *run) ensureCluster(ctx context.Context, client versioned.Interface) error {
	cluster := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: r.cluster.Name, Labels: r.cluster.Labels, Annotations: r.cluster.Annotations},
		Spec:       *r.Cluster.Spec.DeepCopy(), // the server's defaults may be newer
	}
	// What the first machine was rendered with, or it would be configured anew at once.
	cluster.Spec.Hardening.AuditPolicy = r.cluster.Spec.Hardening.AuditPolicy
	_, err := client.IchorV1alpha1().TalosClusters().Create(ctx, cluster, metav1.CreateOptions{})
	if err == nil {
		r.tell("entered TalosCluster %s", cluster.Name)
		return nil
	}
	if _, getErr := client.IchorV1alpha1().TalosClusters().Get(ctx, cluster.Name, metav1.GetOptions{}); getErr == nil {
		return nil
	}
	return fmt.Errorf("create TalosCluster %s: %w", cluster.Name, err)
}

// readFacts reads the machine once more, for its status.
func (r *run) readFacts(ctx context.Context) error {
	return r.withNode(ctx, func(ctx context.Context, node talos.ConfiguredNode) (bool, string, error) {
		facts, err := node.Facts(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		if facts.Inventory == nil {
			return false, "the machine has not read its hardware yet", nil
		}
		r.facts = facts
		return true, "", nil
	})
}

func (r *run) ensureMachine(ctx context.Context, client versioned.Interface, name string) (*v1alpha1.TalosMachine, error) {
	machines := client.IchorV1alpha1().TalosMachines()
	have, err := machines.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return have, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read TalosMachine %s: %w", name, err)
	}
	made, err := machines.Create(ctx, &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: r.machine.Labels, Annotations: r.machine.Annotations},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef:     v1alpha1.ClusterReference{Name: r.cluster.Name},
			Identity:       r.facts.Identity,
			Origin:         v1alpha1.MachineAdopted,
			Address:        r.reached.String(),
			DeletionPolicy: r.machine.Spec.DeletionPolicy,
			Locked:         r.machine.Spec.Locked,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create TalosMachine %s: %w", name, err)
	}
	r.tell("entered TalosMachine %s", name)
	return made, nil
}

// describeMachine writes into the status what an approval is judged by, and what the machine was installed with. The
// controller refreshes it from then on.
func (r *run) describeMachine(ctx context.Context, client versioned.Interface, name string) (*v1alpha1.TalosMachine, error) {
	machines := client.IchorV1alpha1().TalosMachines()
	machine, err := machines.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read TalosMachine %s: %w", name, err)
	}
	if machine.Status.Inventory != nil && machine.Status.SettledVersions != nil {
		return machine, nil
	}
	status := &machine.Status
	status.Inventory = r.facts.Inventory
	status.Addresses = r.facts.Addresses
	status.Hostname = r.facts.Hostname
	status.Stage = r.facts.Stage.Stage
	status.TalosVersion = r.facts.TalosVersion
	status.SchematicID = r.facts.SchematicID
	status.SystemDisk = r.facts.SystemDisk
	versions := r.journal.Versions
	status.SettledVersions = &versions
	if status.Config == nil {
		status.Config = &v1alpha1.MachineConfigStatus{}
	}
	status.Config.AppliedHash = r.journal.Apply.ConfigHash
	status.Config.RenderedHash = r.journal.Apply.ConfigHash
	written, err := machines.UpdateStatus(ctx, machine, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of TalosMachine %s: %w", name, err)
	}
	return written, nil
}

func (r *run) approveMachine(ctx context.Context, client versioned.Interface, name string) (*v1alpha1.TalosMachine, error) {
	machines := client.IchorV1alpha1().TalosMachines()
	machine, err := machines.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read TalosMachine %s: %w", name, err)
	}
	if machine.Spec.ApprovalState == v1alpha1.ApprovalApproved {
		return machine, nil
	}
	decided := r.machine.Spec
	machine.Spec.ApprovalState = v1alpha1.ApprovalApproved
	machine.Spec.Approval = &v1alpha1.MachineApproval{Reason: "first node of the cluster"}
	machine.Spec.Role = v1alpha1.RoleControlPlane
	machine.Spec.Hostname = decided.Hostname
	machine.Spec.NodeLabels = decided.NodeLabels
	machine.Spec.Disks = decided.Disks
	machine.Spec.Network = decided.Network
	approved, err := machines.UpdateApproval(ctx, name, machine, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("approve TalosMachine %s: %w", name, err)
	}
	r.tell("approved TalosMachine %s", name)
	return approved, nil
}
