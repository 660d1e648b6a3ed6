// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// FenceAnnotation on a TalosMachine moves the machine's version, so that an approval that judged an older one fails.
// Its value has no meaning but to be new.
const FenceAnnotation = "ichor.maesh.dev/slot-fence"

// errKeep ends a change that isn't needed.
var errKeep = errors.New("slot is kept")

// Reap removes the slots of a cluster that no approved control plane stands behind, and returns how many went.
func (g *Gate) Reap(ctx context.Context, cluster string) (int, error) {
	current, err := g.store.Cluster(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	removed := 0
	var errs []error
	for _, slot := range current.Status.ControlPlaneSlots {
		went, err := g.reapSlot(ctx, cluster, slot, g.grace)
		if err != nil {
			errs = append(errs, fmt.Errorf("free control-plane slot of machine %s in cluster %s: %w", slot.Name, cluster, err))
			continue
		}
		if went {
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// Release removes the slot of a machine that is gone. It proves that the machine is gone, so a mistaken call is harmless.
func (g *Gate) Release(ctx context.Context, cluster string, machine types.UID) error {
	current, err := g.store.Cluster(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if slot := find(current, machine); slot != nil {
		_, err = g.reapSlot(ctx, cluster, *slot, g.grace)
	}
	return err
}

// reapSlot removes the slot, as it was read, if its machine can't become approved by it. The order is what makes it
// safe: the token was read first, then the machine is judged and touched, then the slot goes only if the token still is
// the one that was read. An unproven slot younger than grace is left alone.
func (g *Gate) reapSlot(ctx context.Context, cluster string, slot ichor.ControlPlaneSlot, grace time.Duration) (freed bool, err error) {
	defer func() { countReaped(freed, err) }()
	free, err := g.fence(ctx, cluster, slot, grace)
	if err != nil || !free {
		return false, err
	}
	err = g.store.UpdateCluster(ctx, cluster, func(current *ichor.TalosCluster) error {
		kept := current.Status.ControlPlaneSlots[:0:0]
		for _, s := range current.Status.ControlPlaneSlots {
			if s.MachineUID != slot.MachineUID || (s.Token != slot.Token && !g.rules.noToken) {
				kept = append(kept, s)
			}
		}
		if len(kept) == len(current.Status.ControlPlaneSlots) {
			return errKeep
		}
		current.Status.ControlPlaneSlots = kept
		Count(current)
		return nil
	})
	if errors.Is(err, errKeep) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// fence makes sure that no approval that claimed the slot as it was read can still be committed. It returns false where
// the slot is to be kept.
func (g *Gate) fence(ctx context.Context, cluster string, slot ichor.ControlPlaneSlot, grace time.Duration) (bool, error) {
	machine, err := g.store.Machine(ctx, slot.Name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch judge(machine, cluster, slot) {
	case holds:
		return false, nil
	case never:
		return true, nil
	}
	if g.now().Sub(slot.At.Time) < grace {
		return false, nil
	}
	free := true
	err = g.store.UpdateMachine(ctx, slot.Name, func(machine *ichor.TalosMachine) error {
		switch judge(machine, cluster, slot) {
		case holds:
			free = false
			return errKeep
		case never:
			free = true
			return errKeep
		}
		free = true
		if g.rules.noTouch {
			return errKeep
		}
		if machine.Annotations == nil {
			machine.Annotations = map[string]string{}
		}
		machine.Annotations[FenceAnnotation] = g.newToken()
		return nil
	})
	if errors.Is(err, errKeep) {
		return free, nil
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil, err
}

type verdict int

const (
	// undecided: the machine may become approved by the slot, unless it is touched.
	undecided verdict = iota
	// holds: the machine is approved by it.
	holds
	// never: this machine can't become approved by it, because it is another one, or is approved as something else.
	never
)

func judge(machine *ichor.TalosMachine, cluster string, slot ichor.ControlPlaneSlot) verdict {
	switch {
	case machine.UID != slot.MachineUID:
		return never
	case machine.Spec.ApprovalState != ichor.ApprovalApproved:
		return undecided
	case machine.Spec.ClusterRef.Name == cluster && machine.Spec.Role == ichor.RoleControlPlane:
		return holds
	default:
		return never
	}
}

// Run reaps the slots of all clusters every interval until the context ends. Several API servers may run it at once.
func (g *Gate) Run(ctx context.Context, interval time.Duration, clusters func(context.Context) ([]string, error), report func(error)) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, interval)
		defer cancel()
		names, err := clusters(ctx)
		if err != nil {
			report(fmt.Errorf("list clusters to free control-plane slots: %w", err))
			return
		}
		for _, name := range names {
			if _, err := g.Reap(ctx, name); err != nil {
				report(err)
			}
		}
	}, interval)
}
