// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineHistory are the last configurations that were rendered for a machine. The subresource talosmachines/history
// answers with it: without their texts, or with ?revision=N one of them with its text. Ichor adds one by posting a history
// with it alone.
type TalosMachineHistory struct {
	metav1.TypeMeta
	// metadata has the machine's name and UID.
	metav1.ObjectMeta
	// revisions are the configurations, the newest first, at most ten.
	Revisions []ConfigRevision
}

// ConfigRevision is a configuration that was rendered for a machine.
type ConfigRevision struct {
	// revision counts the machine's configurations from 1. Set by the server.
	Revision int64
	// hash is the hexadecimal SHA-256 of the configuration's bytes, secrets included: status.config has it as renderedHash.
	Hash string
	// time at which it was rendered. Set by the server.
	Time metav1.Time
	// inputs are what it was made of.
	Inputs ConfigRevisionInputs
	// causes are what changed since the revision before. Set by the server.
	Causes []ConfigRevisionCause
	// text is the configuration in YAML, secrets replaced by asterisks; only there if one revision is asked for.
	Text string
	// textOmitted says why the text isn't kept; empty if it is.
	TextOmitted string
	// diff is the unified diff from the text of the revision before; only there if one revision is asked for. Set by the
	// server.
	Diff string
}

// ConfigRevisionInputs are what a configuration was made of.
type ConfigRevisionInputs struct {
	// cluster is the TalosCluster.
	Cluster ObjectGeneration
	// patches are the TalosConfigPatches, in the order in which they were merged.
	Patches []ObjectGeneration
	// approvedBy is who approved the machine, or changed what was decided about it.
	ApprovedBy string
	// approvedAt is when that was.
	ApprovedAt *metav1.Time
	// versions are the machine's settled versions.
	Versions SettledVersions
}

// ObjectGeneration is an object as it was at some time.
type ObjectGeneration struct {
	// name of the object.
	Name string
	// uid of the object.
	UID types.UID
	// generation of its spec.
	Generation int64
}

// ConfigRevisionCause is something that changed since the revision before.
type ConfigRevisionCause struct {
	// kind is First, TalosConfigPatch, TalosCluster, Approval, Versions or Other.
	Kind string
	// name of the object, for TalosConfigPatch and TalosCluster.
	Name string
	// change is Added, Changed or Removed.
	Change string
	// fromGeneration is the object's generation in the revision before; 0 if it wasn't in it.
	FromGeneration int64
	// generation is the object's generation in this revision; 0 if it isn't in it.
	Generation int64
	// by is the user who did it; known of approvals alone.
	By string
	// manager is the program that wrote the object's spec last, as its managedFields name it, for instance kubectl-edit.
	Manager string
	// message says it for people.
	Message string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineHistoryOptions are the query parameters of talosmachines/history.
type TalosMachineHistoryOptions struct {
	metav1.TypeMeta
	// revision asks for one revision with its text. Defaults to 0: all without.
	Revision int64
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StoredConfigRevision is how the server stores a ConfigRevision: under a key of its own below the machine's UID, its texts
// packed. No endpoint serves it; it is in this package because it is stored like everything else.
type StoredConfigRevision struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// revision is without its texts.
	Revision ConfigRevision
	// text is the configuration, secrets replaced, packed with gzip.
	Text []byte
	// diff is the difference from the text of the revision before, packed with gzip.
	Diff []byte
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// StoredConfigRevisionList is a list of StoredConfigRevisions.
type StoredConfigRevisionList struct {
	metav1.TypeMeta
	metav1.ListMeta
	// items are the revisions.
	Items []StoredConfigRevision
}
