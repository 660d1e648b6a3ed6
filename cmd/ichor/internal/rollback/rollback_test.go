// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// patch is for the machine, as a generation.
func patch(name string, generation int64, changes ...func(*v1alpha1.TalosConfigPatch)) v1alpha1.TalosConfigPatch {
	made := v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: generation}}
	made.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, MachineNames: []string{"m"}}
	for _, change := range changes {
		change(&made)
	}
	return made
}

func was(name string, generation int64) v1alpha1.ObjectGeneration {
	return v1alpha1.ObjectGeneration{Name: name, UID: types.UID("uid-" + name), Generation: generation}
}

func TestWhatToChangeToGoBack(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	later := metav1.NewTime(at.Add(time.Hour))
	disabled := func(p *v1alpha1.TalosConfigPatch) { p.Spec.Disabled = true }
	for name, tc := range map[string]struct {
		then    []v1alpha1.ObjectGeneration
		patches []v1alpha1.TalosConfigPatch
		change  func(*Now)
		want    []Step
	}{
		"nothing is other":           {then: []v1alpha1.ObjectGeneration{was("a", 1)}, patches: []v1alpha1.TalosConfigPatch{patch("a", 1)}},
		"others' patches are others": {patches: []v1alpha1.TalosConfigPatch{patch("b", 1, func(p *v1alpha1.TalosConfigPatch) { p.Spec.Target.MachineNames = []string{"other"} })}},
		"a patch was changed": {
			then: []v1alpha1.ObjectGeneration{was("a", 1)}, patches: []v1alpha1.TalosConfigPatch{patch("a", 3)},
			want: []Step{{What: "patch a", Since: "changed since (generation 1 to 3)", Do: "kubectl edit talosconfigpatch a"}},
		},
		"a patch was added": {
			patches: []v1alpha1.TalosConfigPatch{patch("a", 1)},
			want:    []Step{{What: "patch a", Since: "added since (generation 1)", Do: `kubectl patch talosconfigpatch a --type=merge -p '{"spec":{"disabled":true}}'`}},
		},
		"a patch was deleted": {
			then: []v1alpha1.ObjectGeneration{was("a", 2)},
			want: []Step{{
				What: "patch a", Since: "removed since (it was generation 2)", Do: "kubectl apply -f FILE",
				Note: "its text is kept nowhere; the lines that it gave are in the difference below",
			}},
		},
		"a patch was disabled": {
			then: []v1alpha1.ObjectGeneration{was("a", 1)}, patches: []v1alpha1.TalosConfigPatch{patch("a", 2, disabled)},
			want: []Step{{What: "patch a", Since: "disabled since (generation 1 to 2)", Do: `kubectl patch talosconfigpatch a --type=merge -p '{"spec":{"disabled":false}}'`}},
		},
		"a patch is for others now": {
			then:    []v1alpha1.ObjectGeneration{was("a", 1)},
			patches: []v1alpha1.TalosConfigPatch{patch("a", 2, func(p *v1alpha1.TalosConfigPatch) { p.Spec.Target.MachineNames = []string{"other"} })},
			want: []Step{{
				What: "patch a", Since: "isn't for the machine any more (generation 1 to 2)", Do: "kubectl edit talosconfigpatch a",
				Note: "its target, or the labels of the machine, changed",
			}},
		},
		"a patch is another of its name, and for all": {
			then:    []v1alpha1.ObjectGeneration{{Name: "a", UID: "old", Generation: 1}},
			patches: []v1alpha1.TalosConfigPatch{patch("a", 1, func(p *v1alpha1.TalosConfigPatch) { p.Spec.Target.MachineNames = nil })},
			want: []Step{{
				What: "patch a", Since: "deleted and made anew since (generation 1)", Do: "kubectl edit talosconfigpatch a", Note: "it may be for other machines too",
			}},
		},
		"the cluster, the approval and the versions": {
			change: func(now *Now) {
				now.Cluster.Generation = 5
				now.Machine.Spec.Approval = &v1alpha1.MachineApproval{By: "bob", At: &later}
				now.Machine.Status.SettledVersions.Talos = "v1.14.6"
			},
			want: []Step{
				{What: "cluster prod", Since: "changed since (generation 4 to 5)", Do: "kubectl edit taloscluster prod"},
				{
					What: "approval", Since: "was approved anew by bob", Do: "kubectl ichor machine approve m",
					Note: "labels, network and disks for data can be decided again; role, install disk and a control plane's hostname can't",
				},
				{What: "versions", Since: "settled anew since: Talos v1.14.5 to v1.14.6", Note: "operations change them, and nothing else does"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := Now{
				Machine: &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}},
				Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "c", Generation: 4}},
				Patches: tc.patches,
			}
			now.Machine.Spec.ClusterRef.Name = "prod"
			now.Machine.Spec.Approval = &v1alpha1.MachineApproval{By: "alice", At: &at}
			now.Machine.Status.SettledVersions = &v1alpha1.SettledVersions{Talos: "v1.14.5"}
			if tc.change != nil {
				tc.change(&now)
			}
			then := &v1alpha1.ConfigRevisionInputs{
				Cluster: v1alpha1.ObjectGeneration{Name: "prod", UID: "c", Generation: 4}, Patches: tc.then, ApprovedBy: "alice", ApprovedAt: &at,
				Versions: v1alpha1.SettledVersions{Talos: "v1.14.5"},
			}
			if diff := cmp.Diff(tc.want, Steps(then, now, "kubectl ichor")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
