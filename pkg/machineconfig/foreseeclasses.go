// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig/textdiff"
)

// foreseeing is a Foresight on its way.
type foreseeing struct {
	*Foresight
	cluster       *v1alpha1.TalosCluster
	bundle        *secrets.Bundle
	change        PatchChange
	before, after []*v1alpha1.TalosConfigPatch
	compiled      map[*v1alpha1.TalosConfigPatch]compiledPatch
}

// class are machines, by name, that a change of the patch can only do the same to.
type class struct {
	machines []*v1alpha1.TalosMachine
}

func (c *class) names() []string {
	names := make([]string, 0, len(c.machines))
	for _, m := range c.machines {
		names = append(names, m.Name)
	}
	return names
}

// classes sorts the machines that the patch is for into classes, the largest first.
//
// A configuration is base, then patches, then what approval decided, and each of these stages treats one document apart
// from all others: so what a change of a patch does to the documents that the patch has depends on nothing else than the
// base, the patches, and what approval decides on in these same documents. Whether documents go together at all, Talos
// judges by their kinds and names. The key of a class is just these. Values that approval decides on in other documents
// (hostname, addresses, disks) are on both sides, and were judged when the machine was approved.
func (f *foreseeing) classes(ctx context.Context, machines []*v1alpha1.TalosMachine) []*class {
	machines = slices.Clone(machines)
	slices.SortFunc(machines, func(a, b *v1alpha1.TalosMachine) int { return cmp.Compare(a.Name, b.Name) })
	touched := f.touched()
	found := map[string]*class{}
	var all []*class
	for _, m := range machines {
		if !f.concerns(m) {
			continue
		}
		if ctx.Err() != nil {
			f.NotComputed++
			continue
		}
		key := f.key(m, touched)
		if found[key] == nil {
			found[key] = &class{}
			all = append(all, found[key])
		}
		found[key].machines = append(found[key].machines, m)
	}
	slices.SortStableFunc(all, func(a, b *class) int { return cmp.Compare(len(b.machines), len(a.machines)) })
	return all
}

// concerns tells whether a machine could change, and counts it.
func (f *foreseeing) concerns(m *v1alpha1.TalosMachine) bool {
	if m.Spec.ApprovalState != v1alpha1.ApprovalApproved || m.DeletionTimestamp != nil || m.Spec.ClusterRef.Name != f.cluster.Name {
		return false
	}
	targets := func(patch *v1alpha1.TalosConfigPatch) bool { return patch != nil && Targets(&patch.Spec.Target, m) }
	has := func(patch *v1alpha1.TalosConfigPatch) bool { return targets(patch) && !patch.Spec.Disabled }
	if f.change.After == nil && targets(f.change.Before) || targets(f.change.After) {
		f.Matched++
	}
	if !has(f.change.Before) && !has(f.change.After) {
		return false
	}
	// A machine that was adopted is given versions when it turns out to run what it would be given, or never.
	if m.Spec.Origin == v1alpha1.MachineAdopted && m.Status.SettledVersions == nil {
		f.NotReached++
		return false
	}
	return true
}

// touched is what the patch has something to say about, before or after.
type touched struct {
	documents  map[string]bool
	nodeLabels bool
}

func (f *foreseeing) touched() touched {
	all := touched{documents: map[string]bool{}}
	for _, patch := range []*v1alpha1.TalosConfigPatch{f.change.Before, f.change.After} {
		if patch == nil {
			continue
		}
		made := f.compile(patch)
		if made.err != nil {
			continue // nothing is rendered with it
		}
		for _, document := range append(slices.Clone(made.patch.controlPlane), made.patch.worker...) {
			all.add(document)
		}
	}
	return all
}

func (t *touched) add(document config.Document) {
	if name := DocumentName(document); name != MainDocument {
		t.documents[name] = true
		return
	}
	// Of the main document, approval decides on the labels of the Node, which a patch may have too, and on the install disk,
	// which no patch may have.
	_, deletes := document.(configloader.Selector)
	main, ok := document.(*talosv1alpha1.Config)
	t.nodeLabels = t.nodeLabels || deletes || ok && main.MachineConfig != nil && len(main.MachineConfig.MachineNodeLabels) > 0
}

// classKey is what the key of a class is made of.
type classKey struct {
	Role               v1alpha1.MachineRole
	Versions           v1alpha1.SettledVersions
	MaintenanceVersion string
	// SecureBoot and UnifiedKernelImage are how the machine boots, which the base depends on.
	SecureBoot, UnifiedKernelImage bool
	Before, After                  []string
	NodeLabels                     map[string]string
	Documents                      []string
	Contents                       []string
	// Fault is of a machine that can't be rendered at all.
	Fault string
}

func (f *foreseeing) key(m *v1alpha1.TalosMachine, touched touched) string {
	in := previewInputs(f.bundle, f.cluster, m)
	key := classKey{
		Role: m.Spec.Role, Versions: in.Facts.Versions, MaintenanceVersion: in.Facts.MaintenanceVersion,
		Before: names(PatchesFor(m, f.before)), After: names(PatchesFor(m, f.after)),
	}
	if inventory := in.Facts.Inventory; inventory != nil {
		key.SecureBoot, key.UnifiedKernelImage = inventory.SecureBoot, inventory.UnifiedKernelImage
	}
	if touched.nodeLabels {
		key.NodeLabels = m.Spec.NodeLabels
	}
	_, err := resolveDisks(m.Spec.Disks, in.Facts.Inventory)
	var decided []config.Document
	if err == nil {
		decided, err = decidedDocuments(m, in.Facts.Inventory)
	}
	if err != nil {
		key.Fault = err.Error()
	}
	for _, document := range decided {
		name := DocumentName(document)
		key.Documents = append(key.Documents, name)
		if !touched.documents[name] {
			continue
		}
		text, err := encoder.NewEncoder(document, encoder.WithComments(encoder.CommentsDisabled)).Encode()
		if err != nil {
			text = []byte(m.Name) // it is its own class, and the error comes when it is rendered
		}
		key.Contents = append(key.Contents, string(text))
	}
	text, err := json.Marshal(key)
	if err != nil {
		return m.Name
	}
	return string(text)
}

func names(patches []*v1alpha1.TalosConfigPatch) []string {
	var all []string
	for _, patch := range patches {
		all = append(all, patch.Name)
	}
	return all
}

// outcomes puts classes together that turned out to get the same.
type outcomes struct {
	changes  map[string]*ForeseenChange
	refusals map[refusalKey]*ForeseenRefusal
}

// refusalKey is what makes refusals the same.
type refusalKey struct{ Patch, Path, Reason string }

func newOutcomes() *outcomes {
	return &outcomes{changes: map[string]*ForeseenChange{}, refusals: map[refusalKey]*ForeseenRefusal{}}
}

func (o *outcomes) refuse(class *class, refusal ForeseenRefusal) {
	key := refusalKey{refusal.Patch, refusal.Path, refusal.Reason}
	if have := o.refusals[key]; have != nil {
		have.Machines = append(have.Machines, class.names()...)
		return
	}
	refusal.Machines = class.names()
	o.refusals[key] = &refusal
}

// change adds a change. Those are the same whose fields differ in the same way and whose lines do: what is shown of a field
// may be cut, and the lines alone don't say where they are.
func (o *outcomes) change(class *class, change ForeseenChange) {
	change.Machines = class.names()
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q %q %q\n", change.Unknown, change.Differences, change.Late)
	var lines []string
	if change.Unknown == "" {
		lines = strings.Split(textdiff.Unified("", "", string(change.before), string(change.after)), "\n")
	}
	for i, mark := range textdiff.Marks(lines) {
		if mark == textdiff.Added || mark == textdiff.Removed {
			_, _ = fmt.Fprintln(hash, lines[i])
		}
	}
	key := string(hash.Sum(nil))
	have := o.changes[key]
	if have == nil {
		o.changes[key] = &change
		return
	}
	if change.Machines[0] < have.Machines[0] {
		have.before, have.after = change.before, change.after
	}
	have.Machines = append(have.Machines, change.Machines...)
	slices.Sort(have.Machines)
}

func (o *outcomes) sorted() (changes []ForeseenChange, refusals []ForeseenRefusal) {
	for change := range maps.Values(o.changes) {
		changes = append(changes, *change)
	}
	for refusal := range maps.Values(o.refusals) {
		slices.Sort(refusal.Machines)
		refusals = append(refusals, *refusal)
	}
	slices.SortFunc(changes, func(a, b ForeseenChange) int { return byNumber(a.Machines, b.Machines) })
	slices.SortFunc(refusals, func(a, b ForeseenRefusal) int { return byNumber(a.Machines, b.Machines) })
	return changes, refusals
}
