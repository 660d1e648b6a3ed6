// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// authors say who wrote the objects that configurations are made of, as they are now.
type authors struct {
	cluster authored
	patches map[string]authored
}

// authored is an object, and the program that wrote its spec last.
type authored struct {
	uid        types.UID
	generation int64
	manager    string
}

// authorOf reads an object. Whoever wrote it is known by the name that his program gave itself; the user isn't.
func authorOf(meta *metav1.ObjectMeta) authored {
	a := authored{uid: meta.UID, generation: meta.Generation}
	var last *metav1.ManagedFieldsEntry
	for i := range meta.ManagedFields {
		entry := &meta.ManagedFields[i]
		if entry.Subresource == "" && (last == nil || last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	if last != nil {
		a.manager = last.Manager
	}
	return a
}

// wrote is the manager that wrote this very generation of the object; empty if it moved on since.
func (a authored) wrote(object ichor.ObjectGeneration) string {
	if a.uid != object.UID || a.generation != object.Generation {
		return ""
	}
	return a.manager
}

// causesOf tells what changed between the inputs of two revisions; before is nil for the first one.
func causesOf(before, after *ichor.ConfigRevisionInputs, now authors) []ichor.ConfigRevisionCause {
	if before == nil {
		return []ichor.ConfigRevisionCause{{Kind: v1alpha1.CauseFirst, Message: "nothing was rendered for the machine before"}}
	}
	causes := patchCauses(before.Patches, after.Patches, now.patches)
	if was, is := before.Cluster, after.Cluster; was != is {
		cause := ichor.ConfigRevisionCause{
			Kind: v1alpha1.CauseCluster, Name: is.Name, Change: v1alpha1.CauseChanged, FromGeneration: was.Generation, Generation: is.Generation,
			Manager: now.cluster.wrote(is),
		}
		cause.Message = fmt.Sprintf("cluster %s went from generation %d to %d%s", is.Name, was.Generation, is.Generation, writtenBy(cause.Manager))
		causes = append(causes, cause)
	}
	if before.ApprovedBy != after.ApprovedBy || !before.ApprovedAt.Equal(after.ApprovedAt) {
		cause := ichor.ConfigRevisionCause{Kind: v1alpha1.CauseApproval, Change: v1alpha1.CauseChanged, By: after.ApprovedBy, Message: "the machine was approved anew"}
		if cause.By != "" {
			cause.Message += ", by " + cause.By
		}
		causes = append(causes, cause)
	}
	if before.Versions != after.Versions {
		causes = append(causes, ichor.ConfigRevisionCause{
			Kind: v1alpha1.CauseVersions, Change: v1alpha1.CauseChanged, Message: versionsMessage(&before.Versions, &after.Versions),
		})
	}
	if len(causes) == 0 {
		causes = []ichor.ConfigRevisionCause{{
			Kind: v1alpha1.CauseOther, Change: v1alpha1.CauseChanged,
			Message: "no patch, nor the cluster, approval or versions changed: it is a value from a Secret, the cluster's secrets, the machine's own disks and links, or a newer Ichor",
		}}
	}
	return causes
}

// patchCauses are those among patches, by name.
func patchCauses(before, after []ichor.ObjectGeneration, now map[string]authored) []ichor.ConfigRevisionCause {
	was, is := byName(before), byName(after)
	both := maps.Clone(was)
	maps.Copy(both, is)
	var causes []ichor.ConfigRevisionCause
	for _, name := range slices.Sorted(maps.Keys(both)) {
		from, had := was[name]
		to, has := is[name]
		if had && has && from == to {
			continue
		}
		cause := ichor.ConfigRevisionCause{Kind: v1alpha1.CausePatch, Name: name, FromGeneration: from.Generation, Generation: to.Generation}
		switch {
		case !had:
			cause.Change, cause.Manager = v1alpha1.CauseAdded, now[name].wrote(to)
			cause.Message = fmt.Sprintf("patch %s was added (generation %d)%s", name, to.Generation, writtenBy(cause.Manager))
		case !has:
			cause.Change = v1alpha1.CauseRemoved
			cause.Message = goneMessage(from, now, &cause)
		case from.UID != to.UID:
			cause.Change, cause.Manager = v1alpha1.CauseChanged, now[name].wrote(to)
			cause.Message = fmt.Sprintf("patch %s was deleted and made anew (generation %d)%s", name, to.Generation, writtenBy(cause.Manager))
		default:
			cause.Change, cause.Manager = v1alpha1.CauseChanged, now[name].wrote(to)
			cause.Message = fmt.Sprintf("patch %s went from generation %d to %d%s", name, from.Generation, to.Generation, writtenBy(cause.Manager))
		}
		causes = append(causes, cause)
	}
	return causes
}

// goneMessage says why a patch isn't merged any more: because it is gone, or for what is written in it now.
func goneMessage(from ichor.ObjectGeneration, now map[string]authored, cause *ichor.ConfigRevisionCause) string {
	current, there := now[from.Name]
	if !there || current.uid != from.UID {
		return fmt.Sprintf("patch %s (generation %d) was deleted", from.Name, from.Generation)
	}
	if current.generation != from.Generation {
		cause.Manager = current.manager
	}
	return fmt.Sprintf("patch %s (generation %d) isn't for the machine any more: it was disabled, or its target or the machine's labels changed%s",
		from.Name, from.Generation, writtenBy(cause.Manager))
}

func writtenBy(manager string) string {
	if manager == "" {
		return ""
	}
	return ", written by " + manager
}

func byName(objects []ichor.ObjectGeneration) map[string]ichor.ObjectGeneration {
	named := make(map[string]ichor.ObjectGeneration, len(objects))
	for _, object := range objects {
		named[object.Name] = object
	}
	return named
}

func versionsMessage(before, after *ichor.SettledVersions) string {
	var parts []string
	for _, each := range []struct{ what, was, is string }{
		{"Talos", before.Talos, after.Talos},
		{"Kubernetes", before.Kubernetes, after.Kubernetes},
		{"kube-apiserver", cmp.Or(before.KubeAPIServer, before.Kubernetes), cmp.Or(after.KubeAPIServer, after.Kubernetes)},
		{"kube-controller-manager", cmp.Or(before.KubeControllerManager, before.Kubernetes), cmp.Or(after.KubeControllerManager, after.Kubernetes)},
		{"kube-scheduler", cmp.Or(before.KubeScheduler, before.Kubernetes), cmp.Or(after.KubeScheduler, after.Kubernetes)},
		{"schematic", before.SchematicID, after.SchematicID},
		{"configuration for Talos", before.ConfigContract, after.ConfigContract},
	} {
		follows := strings.HasPrefix(each.what, "kube-") && each.was == before.Kubernetes && each.is == after.Kubernetes
		if each.was != each.is && !follows {
			parts = append(parts, fmt.Sprintf("%s %s to %s", each.what, cmp.Or(each.was, "none"), cmp.Or(each.is, "none")))
		}
	}
	return "the machine's versions were settled anew: " + strings.Join(parts, ", ")
}
