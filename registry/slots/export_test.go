// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"slices"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// leavings makes each rule of this package one that a gate goes without.
var leavings = map[string]func(*Gate){
	"hostname":     func(g *Gate) { g.rules.noHostname = true },
	"slot per UID": func(g *Gate) { g.rules.noSlotPerUID = true },
	"new token":    func(g *Gate) { g.rules.noNewToken = true },
	"rename":       func(g *Gate) { g.rules.noRename = true },
	"version":      func(g *Gate) { g.rules.noVersion = true },
	"UID":          func(g *Gate) { g.rules.noUID = true },
	"final object": func(g *Gate) { g.rules.noFinalObject = true },
	"cluster UID":  func(g *Gate) { g.rules.noClusterUID = true },
	"touch":        func(g *Gate) { g.rules.noTouch = true },
	"token":        func(g *Gate) { g.rules.noToken = true },
	"quorum": func(g *Gate) {
		store := g.store.(registryStore)
		store.version = "0" // any version will do, so a cache answers
		g.store = store
	},
}

// Without leaves a rule out.
func Without(rule string) Option { return leavings[rule] }

// Rules are the names of the rules that can be left out in this package.
func Rules() []string {
	var names []string
	for name := range leavings {
		names = append(names, name)
	}
	return names
}

// GiveBack removes the slot with the token, as no approval does (rule "no release").
func (g *Gate) GiveBack(ctx context.Context, cluster, token string) error {
	return g.store.UpdateCluster(ctx, cluster, func(current *ichor.TalosCluster) error {
		current.Status.ControlPlaneSlots = slices.DeleteFunc(current.Status.ControlPlaneSlots, func(s ichor.ControlPlaneSlot) bool { return s.Token == token })
		Count(current)
		return nil
	})
}
