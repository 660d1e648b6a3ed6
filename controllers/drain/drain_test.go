// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func skipAfter(d time.Duration) Options {
	return Options{Spec: v1alpha1.Drain{SkipWaitForDeleteTimeout: &metav1.Duration{Duration: d}}}
}

func TestWhichPodsAreEvicted(t *testing.T) {
	t.Parallel()
	tainted := node("b", false, "")
	tainted.Spec.Taints = []corev1.Taint{{Key: "only-for-others", Effect: corev1.TaintEffectNoSchedule}}
	notReady := node("b", false, "")
	notReady.Status.Conditions = nil
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	pinned := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"control-plane": ""} }
	for name, tc := range map[string]struct {
		other    *corev1.Node
		pods     []runtime.Object
		options  Options
		evicted  []string
		left     string
		blockers int
		done     bool
	}{
		"nothing is there":            {done: true},
		"one of a ReplicaSet":         {pods: []runtime.Object{pod("web", "p")}, evicted: []string{"p"}, blockers: 1},
		"one of a DaemonSet":          {pods: []runtime.Object{daemonSet, pod("kube-system", "p", ofDaemonSet)}, done: true},
		"one whose DaemonSet is gone": {pods: []runtime.Object{pod("kube-system", "p", ofDaemonSet)}, evicted: []string{"p"}, blockers: 1},
		"a static one":                {pods: []runtime.Object{pod("kube-system", "p", static)}, done: true},
		"one that has ended":          {pods: []runtime.Object{pod("web", "p", ended)}, done: true},
		"one without a controller":    {pods: []runtime.Object{pod("web", "p", bare)}, done: true, left: "pod web/p, which has no controller"},
		"that one, on a machine that doesn't come back": {
			pods: []runtime.Object{pod("web", "p", bare)}, options: Options{Gone: true}, evicted: []string{"p"}, blockers: 1,
		},
		"one with an emptyDir": {pods: []runtime.Object{pod("web", "p", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		})}, evicted: []string{"p"}, blockers: 1},
		"one that is ending":                      {pods: []runtime.Object{pod("web", "p", told(10*time.Second))}, blockers: 1},
		"one that should be gone, waited for":     {pods: []runtime.Object{pod("web", "p", told(time.Hour))}, blockers: 1},
		"one that should be gone, not waited for": {pods: []runtime.Object{pod("web", "p", told(time.Hour))}, options: skipAfter(time.Minute), done: true},
		"one that ends now, though nobody waits long": {
			pods: []runtime.Object{pod("web", "p", func(p *corev1.Pod) {
				now := metav1.Now() // kubectl's filter knows no clock but the real one
				p.DeletionTimestamp = &now
			})}, options: skipAfter(time.Minute), blockers: 1,
		},

		"Ichor's own, last":  {pods: []runtime.Object{pod("web", "p"), pod("ichor-system", "controller")}, evicted: []string{"p"}, blockers: 1},
		"Ichor's own, alone": {pods: []runtime.Object{pod("ichor-system", "controller")}, evicted: []string{"controller"}, blockers: 1},
		"Ichor's own, that no other Node tolerates": {
			other: tainted, pods: []runtime.Object{pod("ichor-system", "controller")}, done: true, left: "pod ichor-system/controller, which no other Node takes",
		},
		"Ichor's own, that tolerates it": {other: tainted, pods: []runtime.Object{pod("ichor-system", "controller", tolerant)}, evicted: []string{"controller"}, blockers: 1},
		"Ichor's own, that no other Node fits": {
			pods: []runtime.Object{pod("ichor-system", "apiserver", pinned)}, done: true, left: "pod ichor-system/apiserver, which no other Node takes",
		},
		"Ichor's own, where the other Node is not ready": {other: notReady, pods: []runtime.Object{pod("ichor-system", "controller")}, done: true, left: "no other Node takes"},
		"Ichor's own, where the other Node is cordoned": {
			other: node("b", true, ""), pods: []runtime.Object{pod("ichor-system", "controller")}, done: true, left: "no other Node takes",
		},
		"others, where the other Node is cordoned": {other: node("b", true, ""), pods: []runtime.Object{pod("web", "p")}, evicted: []string{"p"}, blockers: 1},
		"Ichor's own, that is ending anyway":       {other: tainted, pods: []runtime.Object{pod("ichor-system", "controller", told(0))}, blockers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := tc.other
			if other == nil {
				other = node("b", false, "")
			}
			c := newCluster(t, append([]runtime.Object{node("a", true, ours), other}, tc.pods...)...)
			got := c.drain(t, tc.options)
			if diff := cmp.Diff(tc.evicted, c.evicted); diff != "" {
				t.Errorf("evicted (-want +got):\n%s", diff)
			}
			if got.Done != tc.done || len(got.Blockers) != tc.blockers || got.Asked != len(tc.evicted) {
				t.Errorf("want done %t and %d blockers, got %+v", tc.done, tc.blockers, got)
			}
			if left := strings.Join(got.Left, "; "); !strings.Contains(left, tc.left) || tc.left == "" && left != "" {
				t.Errorf("left: want %q, got %q", tc.left, left)
			}
			if len(c.deleted) > 0 {
				t.Errorf("deleted past their budgets: %v", c.deleted)
			}
			// Again, nothing is asked twice.
			c.drain(t, tc.options)
			if diff := cmp.Diff(tc.evicted, c.evicted); diff != "" {
				t.Errorf("evicted in two passes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestADrainFromBeginToEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, node("a", true, ours), node("b", false, ""), daemonSet, pod("kube-system", "agent", ofDaemonSet), claim("db", "data-0", "pv-1"),
		pod("web", "p"), pod("db", "data", claims("data-0")), pod("ichor-system", "controller"), attachment("pv-1", "a"), attachment("pv-9", "b"))
	first := c.drain(t, Options{})
	if first.Asked != 2 || first.Done || !strings.Contains(first.Message(), "pod db/data has been terminating for 0s of its 30s; pod web/p") {
		t.Errorf("first: %+v", first)
	}
	c.ends(t)
	if own := c.drain(t, Options{}); own.Asked != 1 || own.Done || !slices.Contains(c.evicted, "controller") {
		t.Errorf("Ichor's own: %+v", own)
	}
	c.ends(t)
	if volumes := c.drain(t, Options{}); volumes.Done || volumes.Message() != "waits for volume pv-1 is still attached by rbd.csi" {
		t.Errorf("volumes: %+v", volumes)
	}
	if err := c.StorageV1().VolumeAttachments().Delete(t.Context(), "csi-pv-1a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if last := c.drain(t, Options{}); !last.Done || last.Message() != "" {
		t.Errorf("last: %+v", last)
	}
}

func TestANodeThatIsNotCordonedIsNotDrained(t *testing.T) {
	t.Parallel()
	c := newCluster(t, node("a", false, ours), node("b", false, ""), pod("web", "p"))
	got := c.drain(t, Options{})
	if got.Done || len(c.evicted) > 0 || !strings.Contains(got.Message(), "kubectl cordon a") {
		t.Errorf("evicted %v, got %+v", c.evicted, got)
	}
}

func TestTheOnlyNodeIsNotDrained(t *testing.T) {
	t.Parallel()
	leaving := node("b", false, "")
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: start}, []string{"x/y"}
	for name, there := range map[string][]runtime.Object{
		"alone":                             {node("a", true, ours)},
		"but for one that is being deleted": {node("a", true, ours), leaving},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, append(there, pod("web", "p"), pod("ichor-system", "controller"), attachment("pv-1", "a"))...)
			got := c.drain(t, Options{})
			if !got.Done || len(c.evicted) > 0 || got.Message() != "left on the Node: every pod: the cluster has no other Node" {
				t.Errorf("evicted %v, got %+v", c.evicted, got)
			}
		})
	}
}

func TestPodsThatDoNotGoAreNamedWithTheReason(t *testing.T) {
	t.Parallel()
	unjudged := budget("web", "p", 0, 0, 0, 0)
	unjudged.Generation = 2
	all := budget("web", "p", 0, 3, 2, 3)
	all.Name, all.Spec.Selector = "budget-all", &metav1.LabelSelector{}
	two := apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."))
	deleted := apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("namespace web is being terminated"))
	deleted.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		there []runtime.Object
		err   error
		want  Blocker
	}{
		"by a budget that allows none now": {
			there: []runtime.Object{budget("web", "p", 0, 2, 2, 3), budget("web", "q", 1, 3, 2, 3), budget("other", "p", 1, 3, 2, 3)}, err: overBudget("budget-p"),
			want: Blocker{Reason: Budget, Message: "is held by PodDisruptionBudget web/budget-p (allows 0 disruptions: 2 of 3 pods are healthy, 2 must be)"},
		},
		"by a budget that never allows any": {
			there: []runtime.Object{budget("web", "p", 0, 1, 1, 1)}, err: overBudget("budget-p"),
			want: Blocker{Reason: Budget, Message: "is held by PodDisruptionBudget web/budget-p (allows 0 disruptions: 1 of 1 pods are healthy, 1 must be); it never allows one: add a replica, or change the budget"},
		},
		"by a budget that isn't judged yet": {
			there: []runtime.Object{unjudged}, err: overBudget("budget-p"),
			want: Blocker{Reason: Budget, Message: "is held by PodDisruptionBudget web/budget-p, which Kubernetes has yet to judge"},
		},
		"by two budgets": {
			there: []runtime.Object{all, budget("web", "p", 1, 3, 2, 3)}, err: two,
			want: Blocker{Reason: Budget, Message: "has several PodDisruptionBudgets, which the API doesn't evict; leave it one of " +
				"PodDisruptionBudget web/budget-all (allows 0 disruptions: 3 of 3 pods are healthy, 2 must be); " +
				"PodDisruptionBudget web/budget-p (allows 1 disruptions: 3 of 3 pods are healthy, 2 must be)"},
		},
		"by an API that has too much to do": {
			err:  apierrors.NewTooManyRequests("try again later", 1),
			want: Blocker{Reason: Denied, Message: "isn't evicted yet: try again later"},
		},
		"by a webhook": {
			err:  apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("admission webhook \"keeper\" denied the request: not today")),
			want: Blocker{Reason: Denied, Message: `isn't evicted: pods "p" is forbidden: admission webhook "keeper" denied the request: not today`},
		},
		"by its namespace, which goes": {
			err:  deleted,
			want: Blocker{Reason: Denied, Message: "is in a namespace that is being deleted, which will delete it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, append(tc.there, node("a", true, ours), node("b", false, ""), pod("web", "p"), pod("web", "free"))...)
			c.refuses["p"] = tc.err
			got := c.drain(t, Options{})
			if got.Done || !slices.Contains(c.evicted, "free") {
				t.Errorf("the other pod isn't evicted: %v, %+v", c.evicted, got)
			}
			tc.want.Name = "pod web/p"
			if diff := cmp.Diff(tc.want, got.Blockers[0]); diff != "" {
				t.Errorf("blocker (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatEndsSlowlyIsNamed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, node("a", true, ours), node("b", false, ""), pod("web", "slow", told(10*time.Second)), pod("web", "stuck", told(10*time.Minute)),
		pod("web", "held", told(time.Minute), func(p *corev1.Pod) { p.Finalizers = []string{"example.com/wait"} }))
	got := c.drain(t, Options{})
	want := []Blocker{
		{Ending, "pod web/held", "has been terminating for 1m0s of its 30s, with the finalizers example.com/wait", start.Add(-time.Minute)},
		{Ending, "pod web/slow", "has been terminating for 10s of its 30s", start.Add(-10 * time.Second)},
		{Ending, "pod web/stuck", "has been terminating for 10m0s of its 30s; is its kubelet there? spec.drain.skipWaitForDeleteTimeout leaves such pods out", start.Add(-10 * time.Minute)},
	}
	if diff := cmp.Diff(want, got.Blockers); diff != "" {
		t.Errorf("blockers (-want +got):\n%s", diff)
	}
}

func TestWithDisableEvictionPodsAreDeletedPastTheirBudgets(t *testing.T) {
	t.Parallel()
	c := newCluster(t, node("a", true, ours), node("b", false, ""), budget("web", "p", 0, 1, 1, 1), pod("web", "p"))
	c.refuses["p"] = overBudget("budget-p")
	got := c.drain(t, Options{Spec: v1alpha1.Drain{DisableEviction: true}})
	if diff := cmp.Diff([]string{"p"}, c.deleted); diff != "" || len(c.evicted) > 0 || got.Asked != 1 {
		t.Errorf("deleted %v, evicted %v, got %+v", c.deleted, c.evicted, got)
	}
}

func TestAPodThatIsGoneMeanwhileIsNoMatter(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"gone":                     apierrors.NewNotFound(corev1.Resource("pods"), "p"),
		"another has its name now": apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("uid")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, node("a", true, ours), node("b", false, ""), pod("web", "p"))
			c.refuses["p"] = err
			// What comes after the pods is the next pass's.
			if got := c.drain(t, Options{}); got.Done || len(got.Blockers) > 0 || got.Message() == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestWhatConcernsAllPodsIsAnError(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"no right": mayNot("create"), "no connection": errors.New("connection refused")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, node("a", true, ours), node("b", false, ""), pod("web", "p"))
			c.refuses["p"] = err
			if got, err := (Drainer{Client: c}).Drain(t.Context(), "a", Options{}); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
	for _, what := range []string{"nodes", "pods", "daemonsets", "volumeattachments"} {
		t.Run("no "+what, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, node("a", true, ours), node("b", false, ""), daemonSet, pod("kube-system", "agent", ofDaemonSet))
			c.PrependReactor("*", what, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServerTimeout(schema.GroupResource{Resource: what}, "get", 1)
			})
			if got, err := (Drainer{Client: c}).Drain(t.Context(), "a", Options{}); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestVolumesThatAreWaitedFor(t *testing.T) {
	t.Parallel()
	failing := func(a *storagev1.VolumeAttachment) {
		a.DeletionTimestamp, a.Finalizers = &metav1.Time{Time: start}, []string{"external-attacher/rbd-csi"}
		a.Status.DetachError = &storagev1.VolumeError{Message: "rpc error: the image is still mapped"}
	}
	inline := func(a *storagev1.VolumeAttachment) { a.Spec.Source.PersistentVolumeName = nil }
	for name, tc := range map[string]struct {
		there []runtime.Object
		want  []string
	}{
		"another Node's":               {there: []runtime.Object{attachment("pv-1", "b")}},
		"nobody's any more":            {there: []runtime.Object{attachment("pv-1", "a")}, want: []string{"volume pv-1 is still attached by rbd.csi"}},
		"that can't be detached":       {there: []runtime.Object{attachment("pv-1", "a", failing)}, want: []string{"volume pv-1 is being detached by rbd.csi, which failed: rpc error: the image is still mapped"}},
		"of no PersistentVolume":       {there: []runtime.Object{attachment("pv-1", "a", inline)}, want: []string{"volume csi-pv-1a is still attached by rbd.csi"}},
		"of a pod that stays":          {there: []runtime.Object{attachment("pv-1", "a"), pod("web", "p", bare, claims("data")), claim("web", "data", "pv-1")}},
		"of a pod whose claim is gone": {there: []runtime.Object{attachment("pv-1", "a"), pod("web", "p", bare, claims("data"))}, want: []string{"volume pv-1 is still attached by rbd.csi"}},
		"of a pod that has ended":      {there: []runtime.Object{attachment("pv-1", "a"), pod("web", "p", ended, claims("data")), claim("web", "data", "pv-1")}, want: []string{"volume pv-1 is still attached by rbd.csi"}},
		"that a pod that stays has of its own": {there: []runtime.Object{attachment("pv-1", "a"), claim("web", "p-scratch", "pv-1"), pod("web", "p", bare, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, append(tc.there, node("a", true, ours), node("b", false, ""))...)
			got := c.drain(t, Options{})
			var texts []string
			for _, b := range got.Blockers {
				texts = append(texts, b.String())
			}
			if diff := cmp.Diff(tc.want, texts); diff != "" || got.Done != (len(tc.want) == 0) {
				t.Errorf("done %t, blockers (-want +got):\n%s", got.Done, diff)
			}
		})
	}
}

func TestAMessageIsBoundedAndNamesFirstWhatAPersonCanMend(t *testing.T) {
	t.Parallel()
	c := newCluster(t, append(many(200), node("a", true, ours), node("b", false, ""), budget("web", "p77", 0, 1, 1, 1))...)
	c.refuses["p77"] = overBudget("budget-p77")
	got := c.drain(t, Options{})
	message := got.Message()
	if !strings.HasPrefix(message, "waits for pod web/p77 is held by") || !strings.HasSuffix(message, "; and 195 more") || len(message) > 1024 {
		t.Errorf("%d characters: %s", len(message), message)
	}
}
