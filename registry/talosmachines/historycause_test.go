// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// inputsWith are inputs with changes.
func inputsWith(changes ...func(*ichor.ConfigRevisionInputs)) *ichor.ConfigRevisionInputs {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	inputs := &ichor.ConfigRevisionInputs{
		Cluster:    ichor.ObjectGeneration{Name: "prod", UID: "c", Generation: 4},
		Patches:    []ichor.ObjectGeneration{{Name: "tuning", UID: "t", Generation: 1}, {Name: "proxy", UID: "p", Generation: 2}},
		ApprovedBy: "alice", ApprovedAt: &at,
		Versions: ichor.SettledVersions{Talos: "v1.14.5", Kubernetes: "v1.36.6"},
	}
	for _, change := range changes {
		change(inputs)
	}
	return inputs
}

func TestWhatCausedARevision(t *testing.T) {
	t.Parallel()
	now := authors{
		cluster: authored{uid: "c", generation: 5, manager: "kubectl-edit"},
		patches: map[string]authored{
			"tuning": {uid: "t", generation: 2, manager: "argocd"},
			"proxy":  {uid: "p", generation: 3, manager: "kubectl-patch"},
		},
	}
	for name, tc := range map[string]struct {
		before, after *ichor.ConfigRevisionInputs
		now           authors
		want          []ichor.ConfigRevisionCause
	}{
		"there was none before": {
			after: inputsWith(),
			want:  []ichor.ConfigRevisionCause{{Kind: "First", Message: "nothing was rendered for the machine before"}},
		},
		"a patch was changed, and is as it was rendered": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Patches[0].Generation = 2 }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "TalosConfigPatch", Name: "tuning", Change: "Changed", FromGeneration: 1, Generation: 2, Manager: "argocd",
				Message: "patch tuning went from generation 1 to 2, written by argocd",
			}},
		},
		"a patch was changed, and again since: who wrote the one that was rendered isn't known": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Patches[1].Generation = 1 }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "TalosConfigPatch", Name: "proxy", Change: "Changed", FromGeneration: 2, Generation: 1, Message: "patch proxy went from generation 2 to 1",
			}},
		},
		"a patch was added and one deleted": {
			before: inputsWith(), now: authors{},
			after: inputsWith(func(in *ichor.ConfigRevisionInputs) {
				in.Patches[1] = ichor.ObjectGeneration{Name: "zz", UID: "z", Generation: 1}
			}),
			want: []ichor.ConfigRevisionCause{
				{Kind: "TalosConfigPatch", Name: "proxy", Change: "Removed", FromGeneration: 2, Message: "patch proxy (generation 2) was deleted"},
				{Kind: "TalosConfigPatch", Name: "zz", Change: "Added", Generation: 1, Message: "patch zz was added (generation 1)"},
			},
		},
		"a patch was disabled": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Patches = in.Patches[:1] }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "TalosConfigPatch", Name: "proxy", Change: "Removed", FromGeneration: 2, Manager: "kubectl-patch",
				Message: "patch proxy (generation 2) isn't for the machine any more: it was disabled, or its target or the machine's labels changed, written by kubectl-patch",
			}},
		},
		"a patch was deleted and made anew": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Patches[0].UID = "other" }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "TalosConfigPatch", Name: "tuning", Change: "Changed", FromGeneration: 1, Generation: 1, Message: "patch tuning was deleted and made anew (generation 1)",
			}},
		},
		"the cluster was edited": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Cluster.Generation = 5 }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "TalosCluster", Name: "prod", Change: "Changed", FromGeneration: 4, Generation: 5, Manager: "kubectl-edit",
				Message: "cluster prod went from generation 4 to 5, written by kubectl-edit",
			}},
		},
		"bob approved it anew": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.ApprovedBy = "bob" }), now: now,
			want: []ichor.ConfigRevisionCause{{Kind: "Approval", Change: "Changed", By: "bob", Message: "the machine was approved anew, by bob"}},
		},
		"an operation settled other versions": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Versions.Talos, in.Versions.SchematicID = "v1.14.6", "abc" }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "Versions", Change: "Changed", Message: "the machine's versions were settled anew: Talos v1.14.5 to v1.14.6, schematic none to abc",
			}},
		},
		"an operation moved one component on": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Versions.KubeAPIServer = "v1.36.7" }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "Versions", Change: "Changed", Message: "the machine's versions were settled anew: kube-apiserver v1.36.6 to v1.36.7",
			}},
		},
		"every component is moved on at once": {
			before: inputsWith(), after: inputsWith(func(in *ichor.ConfigRevisionInputs) { in.Versions.Kubernetes = "v1.36.7" }), now: now,
			want: []ichor.ConfigRevisionCause{{
				Kind: "Versions", Change: "Changed", Message: "the machine's versions were settled anew: Kubernetes v1.36.6 to v1.36.7",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, causesOf(tc.before, tc.after, tc.now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if other := causesOf(inputsWith(), inputsWith(), now); len(other) != 1 || other[0].Kind != "Other" || !strings.Contains(other[0].Message, "Secret") {
		t.Errorf("where nothing changed that is known: %+v", other)
	}
}

func TestTheAuthorIsWhoWroteTheSpecLast(t *testing.T) {
	t.Parallel()
	at := func(minute int) *metav1.Time {
		at := metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
		return &at
	}
	meta := &metav1.ObjectMeta{UID: "u", Generation: 3, ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kubectl-create", Time: at(1)}, {Manager: "kubectl-edit", Time: at(3)}, {Manager: "argocd", Time: at(2)},
		{Manager: "ichor-controller", Subresource: "status", Time: at(4)},
	}}
	if got := authorOf(meta); got != (authored{uid: "u", generation: 3, manager: "kubectl-edit"}) {
		t.Errorf("got %+v", got)
	}
	if got := authorOf(&metav1.ObjectMeta{}); got != (authored{}) {
		t.Errorf("of an object that nobody is known of: %+v", got)
	}
}

func TestTextsArePackedAndUnpacked(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a: 1\n", strings.Repeat("machine:\n", 10_000)} {
		packed, err := pack(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := unpack(packed); err != nil || got != text {
			t.Errorf("%d bytes became %d, %v", len(text), len(got), err)
		}
	}
	bomb, err := pack(strings.Repeat("\x00", maxUnpacked+1))
	if err != nil {
		t.Fatal(err)
	}
	for what, packed := range map[string][]byte{"no gzip": []byte("text"), "too much": bomb, "half of it": bomb[:len(bomb)/2]} {
		if _, err := unpack(packed); err == nil {
			t.Errorf("%s is unpacked", what)
		}
	}
}
