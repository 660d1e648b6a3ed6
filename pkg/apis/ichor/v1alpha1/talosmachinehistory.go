// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineHistory are the last configurations that were rendered for a machine. The subresource talosmachines/history
// answers with it: without their texts, or with ?revision=N one of them with its text. Ichor adds one by posting a history
// with it alone.
type TalosMachineHistory struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the machine's name and UID.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// revisions are the configurations, the newest first, at most ten.
	// +optional
	// +listType=map
	// +listMapKey=revision
	Revisions []ConfigRevision `json:"revisions,omitempty"`
}

// ConfigRevision is a configuration that was rendered for a machine.
type ConfigRevision struct {
	// revision counts the machine's configurations from 1. Set by the server.
	Revision int64 `json:"revision"`
	// hash is the hexadecimal SHA-256 of the configuration's bytes, secrets included: status.config has it as renderedHash.
	Hash string `json:"hash"`
	// time at which it was rendered. Set by the server.
	// +optional
	Time metav1.Time `json:"time,omitempty"`
	// inputs are what it was made of.
	// +optional
	Inputs ConfigRevisionInputs `json:"inputs,omitempty"`
	// causes are what changed since the revision before. Set by the server.
	// +optional
	// +listType=atomic
	Causes []ConfigRevisionCause `json:"causes,omitempty"`
	// text is the configuration in YAML, secrets replaced by asterisks; only there if one revision is asked for.
	// +optional
	Text string `json:"text,omitempty"`
	// textOmitted says why the text isn't kept; empty if it is.
	// +optional
	TextOmitted string `json:"textOmitted,omitempty"`
	// diff is the unified diff from the text of the revision before; only there if one revision is asked for. Set by the
	// server.
	// +optional
	Diff string `json:"diff,omitempty"`
}

// ConfigRevisionInputs are what a configuration was made of.
type ConfigRevisionInputs struct {
	// cluster is the TalosCluster.
	// +optional
	Cluster ObjectGeneration `json:"cluster,omitempty"`
	// patches are the TalosConfigPatches, in the order in which they were merged.
	// +optional
	// +listType=map
	// +listMapKey=name
	Patches []ObjectGeneration `json:"patches,omitempty"`
	// approvedBy is who approved the machine, or changed what was decided about it.
	// +optional
	ApprovedBy string `json:"approvedBy,omitempty"`
	// approvedAt is when that was.
	// +optional
	ApprovedAt *metav1.Time `json:"approvedAt,omitempty"`
	// versions are the machine's settled versions.
	// +optional
	Versions SettledVersions `json:"versions,omitempty"`
}

// ObjectGeneration is an object as it was at some time.
type ObjectGeneration struct {
	// name of the object.
	Name string `json:"name"`
	// uid of the object.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// generation of its spec.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

const (
	// MaxRevisionText is how long the text of a configuration may be that is kept, in bytes.
	MaxRevisionText = 512 << 10
	// MaxTextOmitted is how long textOmitted may be, in bytes.
	MaxTextOmitted = 256
)

// What can be the cause of a revision.
const (
	// CauseFirst is that there was none before.
	CauseFirst = "First"
	// CausePatch is a TalosConfigPatch.
	CausePatch = "TalosConfigPatch"
	// CauseCluster is the TalosCluster.
	CauseCluster = "TalosCluster"
	// CauseApproval is what was decided about the machine.
	CauseApproval = "Approval"
	// CauseVersions are the settled versions, which operations change.
	CauseVersions = "Versions"
	// CauseOther is something of which no generation is kept: a value from a Secret, the cluster's secrets, the machine's
	// hardware, or a newer Ichor.
	CauseOther = "Other"
)

// How it changed.
const (
	CauseAdded   = "Added"
	CauseChanged = "Changed"
	CauseRemoved = "Removed"
)

// ConfigRevisionCause is something that changed since the revision before.
type ConfigRevisionCause struct {
	// kind is First, TalosConfigPatch, TalosCluster, Approval, Versions or Other.
	Kind string `json:"kind"`
	// name of the object, for TalosConfigPatch and TalosCluster.
	// +optional
	Name string `json:"name,omitempty"`
	// change is Added, Changed or Removed.
	// +optional
	Change string `json:"change,omitempty"`
	// fromGeneration is the object's generation in the revision before; 0 if it wasn't in it.
	// +optional
	FromGeneration int64 `json:"fromGeneration,omitempty"`
	// generation is the object's generation in this revision; 0 if it isn't in it.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// by is the user who did it; known of approvals alone.
	// +optional
	By string `json:"by,omitempty"`
	// manager is the program that wrote the object's spec last, as its managedFields name it, for instance kubectl-edit.
	// +optional
	Manager string `json:"manager,omitempty"`
	// message says it for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:conversion-gen:explicit-from=net/url.Values
// +k8s:openapi-gen=false

// TalosMachineHistoryOptions are the query parameters of talosmachines/history.
type TalosMachineHistoryOptions struct {
	metav1.TypeMeta `json:",inline"`
	// revision asks for one revision with its text. Defaults to 0: all without.
	// +optional
	Revision int64 `json:"revision,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:openapi-gen=false

// StoredConfigRevision is how the server stores a ConfigRevision: under a key of its own below the machine's UID, its texts
// packed. No endpoint serves it; it is in this package because it is stored like everything else.
type StoredConfigRevision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// revision is without its texts.
	Revision ConfigRevision `json:"revision"`
	// text is the configuration, secrets replaced, packed with gzip.
	Text []byte `json:"text,omitempty"`
	// diff is the difference from the text of the revision before, packed with gzip.
	Diff []byte `json:"diff,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:openapi-gen=false

// StoredConfigRevisionList is a list of StoredConfigRevisions.
type StoredConfigRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the revisions.
	Items []StoredConfigRevision `json:"items"`
}
