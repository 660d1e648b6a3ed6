// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// sweepPage is how many revisions a sweep holds at once.
const sweepPage = 100

// Sweep removes the histories of machines that are gone, and returns how many: a server that ends between the deletion of a
// machine and that of its history leaves one. The machines are read after the histories, so that a machine that was made
// meanwhile is among them.
func (h *Histories) Sweep(ctx context.Context, machines func(context.Context) ([]ichor.TalosMachine, error)) (int, error) {
	owners, err := h.owners(ctx)
	if err != nil || len(owners) == 0 {
		return 0, err
	}
	living, err := machines(ctx)
	if err != nil {
		return 0, fmt.Errorf("list machines: %w", err)
	}
	for i := range living {
		delete(owners, living[i].UID)
	}
	removed := 0
	for machine := range owners {
		if err := h.remove(ctx, machine); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// owners are the machines that have a history.
func (h *Histories) owners(ctx context.Context) (map[types.UID]bool, error) {
	owners := map[types.UID]bool{}
	for next := ""; ; {
		predicate := storage.Everything
		predicate.Limit, predicate.Continue = sweepPage, next
		page := &ichor.StoredConfigRevisionList{}
		if err := h.storage.GetList(ctx, h.prefix+"/", storage.ListOptions{Predicate: predicate, Recursive: true}, page); err != nil {
			return nil, fmt.Errorf("read the histories of machines' configurations: %w", err)
		}
		for i := range page.Items {
			owners[page.Items[i].UID] = true
		}
		if next = page.Continue; next == "" {
			return owners, nil
		}
	}
}
