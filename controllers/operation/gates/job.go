// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// JobsRole is the ClusterRole that lets ichor-controller make Jobs where it is bound: artifacts/install.
	JobsRole = "ichor-controller-gate-jobs"
	// leastTTL is how long a Job that has ended stays at least: long enough that its end was seen, however long the
	// controller is away.
	leastTTL = 24 * time.Hour
	// manualAnnotation is what `kubectl create job --from` writes, too.
	// Source: Kubernetes: staging/src/k8s.io/kubectl/pkg/cmd/create/create_job.go.
	manualAnnotation = "cronjob.kubernetes.io/instantiate"
)

// checkJob looks at the Job of the occasion, and makes it if there is none.
func (c Checker) checkJob(ctx context.Context, gate string, spec *v1alpha1.JobGate, occasion Occasion) (Result, error) {
	name := JobName(gate, occasion)
	job, err := c.getJob(ctx, spec.Namespace, name)
	if apierrors.IsNotFound(err) {
		return c.beginJob(ctx, gate, name, spec, occasion)
	}
	return c.judge(job, err, spec, occasion)
}

// judge tells what a Job that was read says.
func (c Checker) judge(job *batchv1.Job, err error, spec *v1alpha1.JobGate, occasion Occasion) (Result, error) {
	switch {
	case refusedToUs(err):
		return mayNot("read or make Jobs", spec.Namespace), nil
	case err != nil:
		return Result{}, fmt.Errorf("read a Job in namespace %s: %w", spec.Namespace, err)
	case !ours(job, occasion):
		return refused("Job %s/%s is there and isn't this operation's; delete it, then resume the operation", job.Namespace, job.Name), nil
	}
	return JobResult(job), nil
}

// JobResult is what a gate's Job says.
func JobResult(job *batchv1.Job) Result {
	what := job.Namespace + "/" + job.Name
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			return Result{State: Opened}
		case batchv1.JobFailed:
			return refused("Job %s failed (%s: %s); see `kubectl logs -n %s job/%s`, then resume the operation: another Job is made",
				what, condition.Reason, condition.Message, job.Namespace, job.Name)
		}
	}
	switch {
	case job.DeletionTimestamp != nil:
		return waiting("Job %s is being deleted; another is made when it is gone", what)
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		return waiting("Job %s is suspended; `kubectl patch -n %s job/%s --type=merge -p '{\"spec\":{\"suspend\":false}}'` lets it run", what, job.Namespace, job.Name)
	}
	return waiting("Job %s has yet to succeed: %d pods run, %d failed", what, job.Status.Active, job.Status.Failed)
}

// beginJob makes the Job. Somebody else may have been faster: then that one is judged.
func (c Checker) beginJob(ctx context.Context, gate, name string, spec *v1alpha1.JobGate, occasion Occasion) (Result, error) {
	from := spec.Namespace + "/" + spec.CronJob
	cron, err := c.getCronJob(ctx, spec)
	switch {
	case apierrors.IsNotFound(err):
		return refused("there is no CronJob %s to make a Job from; make it, then resume the operation", from), nil
	case refusedToUs(err):
		return mayNot("read CronJobs", spec.Namespace), nil
	case err != nil:
		return Result{}, fmt.Errorf("read CronJob %s: %w", from, err)
	}
	creating, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	job, err := c.Kubernetes.BatchV1().Jobs(spec.Namespace).Create(creating, newJob(cron, gate, name, occasion), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		job, err := c.getJob(ctx, spec.Namespace, name)
		return c.judge(job, err, spec, occasion)
	case apierrors.IsInvalid(err):
		return refused("the Job that CronJob %s describes is refused: %s; mend it, then resume the operation", from, quote(err)), nil
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "cannot create resource"):
		// A quota, a namespace that is being deleted, a policy: that may change.
		return waiting("the Job that CronJob %s describes is refused: %s", from, quote(err)), nil
	case refusedToUs(err):
		return mayNot("make Jobs", spec.Namespace), nil
	case err != nil:
		return Result{}, fmt.Errorf("make a Job from CronJob %s: %w", from, err)
	}
	return JobResult(job), nil
}

func mayNot(what, namespace string) Result {
	return waiting("ichor-controller may not %s in namespace %s: an administrator can run `kubectl create rolebinding ichor-gate-jobs -n %s --clusterrole=%s --serviceaccount=%s:ichor-controller`",
		what, namespace, namespace, JobsRole, v1alpha1.SystemNamespace)
}

func (c Checker) getJob(ctx context.Context, namespace, name string) (*batchv1.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.Kubernetes.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c Checker) getCronJob(ctx context.Context, spec *v1alpha1.JobGate) (*batchv1.CronJob, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.Kubernetes.BatchV1().CronJobs(spec.Namespace).Get(ctx, spec.CronJob, metav1.GetOptions{})
}

// JobName is the name of an occasion's Job: with the gate's for people, and otherwise nothing but what makes it the only
// one. It is at most 61 characters long, as pods carry it in a label.
func JobName(gate string, occasion Occasion) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d", occasion.UID, occasion.Machine, gate, occasion.Attempt))
	return "ichor-" + strings.TrimRight(gate[:min(len(gate), 38)], "-") + "-" + hex.EncodeToString(sum[:8])
}

// ours tells whether a Job belongs to the operation of the occasion.
func ours(job *batchv1.Job, occasion Occasion) bool {
	return job.Labels[v1alpha1.OperationUIDLabel] == string(occasion.UID) && job.Annotations[v1alpha1.MachineAnnotation] == occasion.Machine
}

// newJob is what a CronJob describes, marked with what it is for: its pods can read that, by the downward API. It is
// collected with its operation, which belongs to no namespace and so may own objects of any. It is no CronJob's, so
// neither concurrencyPolicy nor the history limits touch it.
func newJob(cron *batchv1.CronJob, gate, name string, occasion Occasion) *batchv1.Job {
	template := cron.Spec.JobTemplate.DeepCopy()
	marks := map[string]string{
		v1alpha1.OperationAnnotation: occasion.Operation, v1alpha1.MachineAnnotation: occasion.Machine, v1alpha1.GateAnnotation: gate,
	}
	mark := func(meta *metav1.ObjectMeta) {
		meta.Labels = joined(meta.Labels, map[string]string{v1alpha1.OperationUIDLabel: string(occasion.UID)})
		meta.Annotations = joined(meta.Annotations, marks)
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cron.Namespace, Name: name, Labels: template.Labels,
			Annotations: joined(template.Annotations, map[string]string{manualAnnotation: "manual"}),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosOperation", Name: occasion.Operation, UID: occasion.UID,
			}},
		},
		Spec: template.Spec,
	}
	mark(&job.ObjectMeta)
	mark(&job.Spec.Template.ObjectMeta)
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
		// One that is gone would be made, and run, again.
		longer := max(*ttl, int32(leastTTL/time.Second))
		job.Spec.TTLSecondsAfterFinished = &longer
	}
	return job
}

// joined is a map with what another has besides, which wins.
func joined(into, from map[string]string) map[string]string {
	out := maps.Clone(into)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, from)
	return out
}
