// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	ours   = types.UID("operation-1")
	theirs = types.UID("operation-2")
)

// node is one with a cordon, and the mark of who cordoned it.
func node(name string, cordoned bool, by types.UID) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Annotations: map[string]string{"other": "kept"}},
		Spec:       corev1.NodeSpec{Unschedulable: cordoned},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	if by != "" {
		n.Annotations[v1alpha1.CordonedByAnnotation] = string(by)
	}
	return n
}

type cordon struct {
	Cordoned bool
	By       string
}

func look(t *testing.T, kube *kubefake.Clientset, name string) cordon {
	t.Helper()
	n, err := kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Annotations["other"] != "kept" {
		t.Errorf("annotations are %v", n.Annotations)
	}
	return cordon{n.Spec.Unschedulable, n.Annotations[v1alpha1.CordonedByAnnotation]}
}

func writes(kube *kubefake.Clientset) (n int) {
	for _, action := range kube.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			n++
		}
	}
	return n
}

func TestCordonAndUncordon(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		there         *corev1.Node
		byUs          bool
		during, after cordon
		writes        int
	}{
		"a Node as it should be":                       {there: node("a", false, ""), byUs: true, during: cordon{true, string(ours)}, writes: 2},
		"one that a person cordoned":                   {there: node("a", true, ""), during: cordon{true, ""}, after: cordon{true, ""}},
		"one that another operation cordoned":          {there: node("a", true, theirs), during: cordon{true, string(theirs)}, after: cordon{true, string(theirs)}},
		"one that we cordoned before a crash":          {there: node("a", true, ours), byUs: true, during: cordon{true, string(ours)}, writes: 1},
		"one that a person uncordoned, with our mark":  {there: node("a", false, ours), byUs: true, during: cordon{true, string(ours)}, writes: 2},
		"one with the mark of an operation long ended": {there: node("a", false, theirs), byUs: true, during: cordon{true, string(ours)}, writes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := kubefake.NewClientset(tc.there)
			d := Drainer{Client: kube}
			for range 2 { // again changes nothing
				byUs, err := d.Cordon(t.Context(), "a", ours)
				if err != nil || byUs != tc.byUs {
					t.Errorf("by us: want %t, got %t %v", tc.byUs, byUs, err)
				}
				if diff := cmp.Diff(tc.during, look(t, kube, "a")); diff != "" {
					t.Errorf("cordoned (-want +got):\n%s", diff)
				}
			}
			for range 2 {
				if err := d.Uncordon(t.Context(), "a", ours); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(tc.after, look(t, kube, "a")); diff != "" {
					t.Errorf("uncordoned (-want +got):\n%s", diff)
				}
			}
			if got := writes(kube); got != tc.writes {
				t.Errorf("%d writes, want %d", got, tc.writes)
			}
		})
	}
}

func TestAPersonWhoTakesTheMarkAwayKeepsTheNodeCordoned(t *testing.T) {
	t.Parallel()
	kube := kubefake.NewClientset(node("a", false, ""))
	d := Drainer{Client: kube}
	if _, err := d.Cordon(t.Context(), "a", ours); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.CordonedByAnnotation + `":null}}}`)
	if _, err := kube.CoreV1().Nodes().Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Uncordon(t.Context(), "a", ours); err != nil {
		t.Fatal(err)
	}
	if got := look(t, kube, "a"); got != (cordon{true, ""}) {
		t.Errorf("got %+v", got)
	}
}

func TestACordonIsJudgedOnTheVersionThatIsWritten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		conflicts int
		fails     bool
	}{"somebody was faster once": {1, false}, "somebody always is": {100, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := kubefake.NewClientset(node("a", false, ""))
			left := tc.conflicts
			kube.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patch := string(action.(clienttesting.PatchAction).GetPatch())
				if want := `{"metadata":{"annotations":{"ichor.maesh.dev/cordoned-by":"operation-1"},"resourceVersion":"7","uid":"uid-a"},"spec":{"unschedulable":true}}`; patch != want {
					t.Errorf("patch is %s, want %s", patch, want)
				}
				if left--; left >= 0 {
					return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "a", nil)
				}
				return false, nil, nil
			})
			byUs, err := Drainer{Client: kube}.Cordon(t.Context(), "a", ours)
			if (err != nil) != tc.fails || byUs == tc.fails {
				t.Errorf("got %t %v", byUs, err)
			}
		})
	}
}

func TestANodeThatIsGone(t *testing.T) {
	t.Parallel()
	d := Drainer{Client: kubefake.NewClientset()}
	if byUs, err := d.Cordon(t.Context(), "a", ours); byUs || !apierrors.IsNotFound(err) {
		t.Errorf("cordon: %t %v", byUs, err)
	}
	if err := d.Uncordon(t.Context(), "a", ours); err != nil {
		t.Errorf("uncordon: %v", err)
	}
	if got, err := d.Drain(t.Context(), "a", Options{}); err != nil || !got.Done {
		t.Errorf("drain: %+v %v", got, err)
	}
}
