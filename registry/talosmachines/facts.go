// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/registry/slots"
)

// factsReader reads what a decision about one machine is judged by besides the machine.
type factsReader struct {
	store    slots.Store
	machines *genericregistry.Store
}

// machine reads the machine from a quorum.
func (r factsReader) machine(ctx context.Context, name string) (*ichor.TalosMachine, error) {
	return r.store.Machine(ctx, name)
}

// facts reads the cluster from a quorum, and the other machines. That nobody else has an address or a worker's hostname
// is judged by the list and so is best effort; what must never be wrong (slots, hostnames of control planes) is not.
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
	others, err := r.list(ctx)
	if err != nil {
		return facts, err
	}
	for _, other := range others {
		if other.UID != was.UID {
			facts.Others = append(facts.Others, other)
		}
	}
	return facts, nil
}

// list returns all machines, at least as new as the call.
func (r factsReader) list(ctx context.Context) ([]ichor.TalosMachine, error) {
	obj, err := r.machines.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	return obj.(*ichor.TalosMachineList).Items, nil
}
