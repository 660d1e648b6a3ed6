// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func cronJob() *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "checks", Name: "smoke"},
		Spec: batchv1.CronJobSpec{Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "smoke"}},
			Spec: batchv1.JobSpec{
				TTLSecondsAfterFinished: ptr.To[int32](5), BackoffLimit: ptr.To[int32](2),
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "smoke", Image: "smoke:1"}}}},
			},
		}},
	}
}

var smoke = v1alpha1.OperationGate{Name: "smoke", Job: &v1alpha1.JobGate{Namespace: "checks", CronJob: "smoke"}}

func check(t *testing.T, kube *kubefake.Clientset, o Occasion) Result {
	t.Helper()
	got, err := Checker{Kubernetes: kube}.Check(t.Context(), smoke, o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func jobs(t *testing.T, kube *kubefake.Clientset) []batchv1.Job {
	t.Helper()
	list, err := kube.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// end writes a Job's end into its status.
func end(t *testing.T, kube *kubefake.Clientset, name string, condition batchv1.JobConditionType) {
	t.Helper()
	job, err := kube.BatchV1().Jobs("checks").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	job.Status.Conditions = []batchv1.JobCondition{{
		Type: condition, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "Job has reached the specified backoff limit",
	}}
	if _, err := kube.BatchV1().Jobs("checks").UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAJobIsMadeOncePerMachineAndAttempt(t *testing.T) {
	t.Parallel()
	kube := kubefake.NewClientset(cronJob())
	for range 3 {
		if got := check(t, kube, occasion); got.State != Waiting || !strings.Contains(got.Message, "has yet to succeed") {
			t.Errorf("a new Job: %+v", got)
		}
	}
	all := jobs(t, kube)
	if len(all) != 1 {
		t.Fatalf("asked three times there are %d Jobs", len(all))
	}
	end(t, kube, all[0].Name, batchv1.JobComplete)
	if got := check(t, kube, occasion); got != (Result{State: Opened}) {
		t.Errorf("it succeeded: %+v", got)
	}

	next := occasion
	next.Machine = "4c4c4544-0052"
	if got := check(t, kube, next); got.State != Waiting {
		t.Errorf("the next machine: %+v", got)
	}
	end(t, kube, JobName("smoke", next), batchv1.JobFailed)
	got := check(t, kube, next)
	if got.State != Refused || !strings.Contains(got.Message, "BackoffLimitExceeded") || !strings.Contains(got.Message, "kubectl logs -n checks job/") {
		t.Errorf("it failed: %+v", got)
	}
	next.Attempt++
	if got := check(t, kube, next); got.State != Waiting {
		t.Errorf("after a resume: %+v", got)
	}
	if all := jobs(t, kube); len(all) != 3 {
		t.Errorf("there are %d Jobs, want one for the first machine and two for the second", len(all))
	}
}

func TestTheJobIsWhatTheCronJobDescribesAndSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	kube := kubefake.NewClientset(cronJob())
	check(t, kube, occasion)
	got := jobs(t, kube)[0]
	got.TypeMeta, got.ManagedFields = metav1.TypeMeta{}, nil
	marks := map[string]string{
		"ichor.maesh.dev/operation": "upgrade", "ichor.maesh.dev/machine": "4c4c4544-0051", "ichor.maesh.dev/gate": "smoke",
	}
	want := batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "checks", Name: got.Name, Labels: map[string]string{"app": "smoke", "ichor.maesh.dev/operation-uid": "0b1c"},
			Annotations:     joined(marks, map[string]string{"cronjob.kubernetes.io/instantiate": "manual"}),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "ichor.maesh.dev/v1alpha1", Kind: "TalosOperation", Name: "upgrade", UID: "0b1c"}},
		},
		Spec: batchv1.JobSpec{
			TTLSecondsAfterFinished: ptr.To[int32](86400), BackoffLimit: ptr.To[int32](2),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"ichor.maesh.dev/operation-uid": "0b1c"}, Annotations: marks},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "smoke", Image: "smoke:1"}}},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Job (-want +got):\n%s", diff)
	}
}

func TestNamesOfJobs(t *testing.T) {
	t.Parallel()
	seen := map[string]Occasion{}
	for _, gate := range []string{"a", "smoke", strings.Repeat("x", 63), strings.Repeat("x", 37) + "-" + strings.Repeat("y", 25)} {
		for _, o := range []Occasion{occasion, {UID: "0b1c", Machine: "b"}, {UID: "0b1d", Machine: "b"}, {UID: "0b1d", Machine: "b", Attempt: 1}} {
			name := JobName(gate, o)
			if faults := utilvalidation.IsDNS1123Label(name); len(faults) > 0 {
				t.Errorf("%s: %v", name, faults)
			}
			if other, found := seen[name]; found {
				t.Errorf("%+v and %+v are both %s", o, other, name)
			}
			seen[name] = o
		}
	}
}

func TestWhatJobsSay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		job   batchv1.Job
		state State
		says  string
	}{
		"running":   {job: batchv1.Job{Status: batchv1.JobStatus{Active: 1, Failed: 2}}, state: Waiting, says: "1 pods run, 2 failed"},
		"suspended": {job: batchv1.Job{Spec: batchv1.JobSpec{Suspend: ptr.To(true)}}, state: Waiting, says: "is suspended"},
		"deleted":   {job: batchv1.Job{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}, state: Waiting, says: "being deleted"},
		"about to fail": {
			job: batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}}}, state: Waiting, says: "has yet",
		},
		"failed once and not any more": {
			job: batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionFalse}}}}, state: Waiting, says: "has yet",
		},
		"succeeded though it is suspended": {
			job:   batchv1.Job{Spec: batchv1.JobSpec{Suspend: ptr.To(true)}, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}},
			state: Opened,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := JobResult(&tc.job); got.State != tc.state || !strings.Contains(got.Message, tc.says) {
				t.Errorf("want %s %q, got %+v", tc.state, tc.says, got)
			}
		})
	}
}

func TestWhatKeepsAJobFromBeingMade(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "batch", Resource: "jobs"}
	fails := func(verb, what string, err error) func(*kubefake.Clientset) {
		return func(kube *kubefake.Clientset) {
			kube.PrependReactor(verb, what, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		}
	}
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(resource, "", errors.New(`User "x" cannot `+verb+` resource "jobs"`))
	}
	other := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "checks", Name: JobName("smoke", occasion)}}
	for name, tc := range map[string]struct {
		there  []runtime.Object
		change func(*kubefake.Clientset)
		state  State
		says   string
	}{
		"no CronJob":                 {state: Refused, says: "no CronJob checks/smoke"},
		"another's Job":              {there: []runtime.Object{cronJob(), other}, state: Refused, says: "isn't this operation's"},
		"no right to read Jobs":      {there: []runtime.Object{cronJob()}, change: fails("get", "jobs", forbidden("get")), state: Waiting, says: "kubectl create rolebinding ichor-gate-jobs -n checks --clusterrole=ichor-controller-gate-jobs"},
		"no right to make Jobs":      {there: []runtime.Object{cronJob()}, change: fails("create", "jobs", forbidden("create")), state: Waiting, says: "may not make Jobs in namespace checks"},
		"no right to read CronJobs":  {there: []runtime.Object{cronJob()}, change: fails("get", "cronjobs", forbidden("get")), state: Waiting, says: "may not read CronJobs"},
		"a quota that is used up":    {there: []runtime.Object{cronJob()}, change: fails("create", "jobs", apierrors.NewForbidden(resource, "", errors.New("exceeded quota: few"))), state: Waiting, says: "exceeded quota"},
		"a Job that the API refuses": {there: []runtime.Object{cronJob()}, change: fails("create", "jobs", apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "x", nil)), state: Refused, says: "mend it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := kubefake.NewClientset(tc.there...)
			if tc.change != nil {
				tc.change(kube)
			}
			if got := check(t, kube, occasion); got.State != tc.state || !strings.Contains(got.Message, tc.says) {
				t.Errorf("want %s %q, got %+v", tc.state, tc.says, got)
			}
		})
	}
}

func TestAJobThatSomebodyElseMadeMeanwhileIsTaken(t *testing.T) {
	t.Parallel()
	kube := kubefake.NewClientset(cronJob())
	// Another replica makes it between our look and our request.
	first := true
	kube.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !first {
			return false, nil, nil
		}
		first = false
		job := newJob(cronJob(), "smoke", JobName("smoke", occasion), occasion)
		if err := kube.Tracker().Add(job); err != nil {
			t.Error(err)
		}
		return false, nil, nil
	})
	if got := check(t, kube, occasion); got.State != Waiting || !strings.Contains(got.Message, "has yet to succeed") {
		t.Errorf("got %+v", got)
	}
	if all := jobs(t, kube); len(all) != 1 {
		t.Errorf("there are %d Jobs", len(all))
	}
}
