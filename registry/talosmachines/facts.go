// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/slots"
)

// factsReader reads what a decision about one machine is judged by besides the machine.
type factsReader struct {
	store    slots.Store
	machines *genericregistry.Store
	// stored is the version of the newest approval that this server has stored.
	stored *newest
}

// machine reads the machine from a quorum.
func (r factsReader) machine(ctx context.Context, name string) (*ichor.TalosMachine, error) {
	return r.store.Machine(ctx, name)
}

// facts reads the cluster from a quorum, and those of the other machines that can be in the decision's way. That nobody
// else has an address or a worker's hostname is best effort: two approvals at the same time don't see each other. So
// those machines are read from the watch cache, as it was when the machine was last written and when this server last
// approved one, or newer. What must never be wrong (slots, hostnames of control planes) is in the cluster.
func (r factsReader) facts(ctx context.Context, machine, was *ichor.TalosMachine) (validation.ApprovalFacts, error) {
	facts := validation.ApprovalFacts{}
	name := machine.Spec.ClusterRef.Name
	if name == "" {
		name = was.Spec.ClusterRef.Name
	}
	if name != "" {
		cluster, err := r.store.Cluster(ctx, name)
		if err != nil && !apierrors.IsNotFound(err) {
			return facts, err
		}
		if err == nil {
			facts.Cluster = cluster
		}
	}
	var err error
	facts.Others, err = r.inTheWay(ctx, machine, was)
	return facts, err
}

// inTheWay are the other machines that share a mark with what would be approved.
func (r factsReader) inTheWay(ctx context.Context, machine, was *ichor.TalosMachine) ([]ichor.TalosMachine, error) {
	version := r.stored.orNewer(was.ResourceVersion)
	var others []ichor.TalosMachine
	known := map[types.UID]bool{was.UID: true}
	for _, mark := range marksOf(machine, was) {
		obj, err := r.machines.ListPredicate(ctx, marked(mark), &metainternalversion.ListOptions{
			ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if apierrors.IsTimeout(err) {
			// The cache is seconds behind; without a version the storage answers, if it has to.
			obj, err = r.machines.ListPredicate(ctx, marked(mark), &metainternalversion.ListOptions{})
		}
		if err != nil {
			return nil, fmt.Errorf("list machines with %s: %w", mark, err)
		}
		for _, other := range obj.(*ichor.TalosMachineList).Items {
			if !known[other.UID] {
				known[other.UID] = true
				others = append(others, other)
			}
		}
	}
	return others, nil
}

// marksOf are the marks by which others can be in the decision's way. A request may leave out what is kept.
func marksOf(machine, was *ichor.TalosMachine) []string {
	decided := &ichor.TalosMachine{Spec: machine.Spec}
	decided.Spec.Identity = was.Spec.Identity
	if decided.Spec.ClusterRef.Name == "" {
		decided.Spec.ClusterRef = was.Spec.ClusterRef
	}
	return validation.ApprovalMarks(decided)
}

// list returns all machines, at least as new as the call.
func (r factsReader) list(ctx context.Context) ([]ichor.TalosMachine, error) {
	obj, err := r.machines.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	return obj.(*ichor.TalosMachineList).Items, nil
}
