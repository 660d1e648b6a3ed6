// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// restartAfter is how long a program that ended stays ended when it is to be started again: the first of a kubelet's
	// pauses, which grow. Source: Kubernetes, pkg/kubelet/kubelet.go, backOffPeriod.
	restartAfter = 10 * time.Second

	// What a program ends with that was told to end, was killed, and was lost with its machine.
	exitTerminated = 143
	exitKilled     = 137
	exitLost       = 255
)

// Host is the node that a pod runs on.
type Host struct {
	Address netip.Addr
	// Network is where the addresses of pods come from.
	Network netip.Prefix
	// Boot tells one boot of the machine from another.
	Boot string
}

// Step is what there is to do for a pod. Status, if not nil, is what to report; Remove asks for the pod's end in the API,
// once its status is reported. Again, if not zero, is when to look again; any change of the pod is a reason, too.
type Step struct {
	Status *corev1.PodStatus
	Remove bool
	Again  time.Time
}

// Next tells what there is to do for a pod that is bound to host.
func Next(pod *corev1.Pod, host Host, now time.Time) Step {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return Step{}
	}

	leaving := pod.DeletionTimestamp != nil
	if over(pod.Status.Phase) {
		// Once it was asked for, what keeps the pod are finalizers.
		grace := pod.DeletionGracePeriodSeconds

		return Step{Remove: leaving && (grace == nil || *grace > 0)}
	}

	w := writer{pod: pod, host: host, now: now, status: pod.Status.DeepCopy()}

	script, err := scriptOf(pod)

	switch {
	case leaving && !w.started():
		w.end(corev1.PodFailed, exitKilled, "")

		return w.step(time.Time{})
	case leaving:
		return leave(&w, script)
	case err != nil:
		w.hold("CreateContainerConfigError", err.Error())

		return w.step(time.Time{})
	case absentImage(pod) != "":
		w.hold("ImagePullBackOff", "Back-off pulling image "+absentImage(pod)+": not found")

		return w.step(time.Time{})
	}

	return run(&w, script)
}

// leave is the end of a pod that is deleted: its program is told to end, and killed when the grace is over.
func leave(w *writer, script script) Step {
	var grace time.Duration
	if seconds := w.pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}

	told := w.pod.DeletionTimestamp.Add(-grace)
	ended, code := told.Add(script.stopsAfter), int32(0)

	switch {
	case w.lost():
		ended, code = w.now, exitLost
	case script.stopsAfter < 0:
		return Step{}
	case script.stopsAfter > grace:
		ended, code = told.Add(grace), exitKilled
	case w.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways:
		// Work that was broken off isn't done.
		code = exitTerminated
	}

	if w.now.Before(ended) {
		return Step{Again: ended}
	}

	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}

	w.end(phase, code, "")

	return w.step(time.Time{})
}

// run is a pod that is to run.
func run(w *writer, script script) Step {
	policy := w.pod.Spec.RestartPolicy

	switch {
	case !w.started():
		w.start(w.now, 0, script.ready)
	case w.lost() && policy == corev1.RestartPolicyNever:
		w.end(corev1.PodFailed, exitLost, "the machine was restarted")

		return w.step(time.Time{})
	case w.lost():
		w.start(w.now, w.restarts()+1, script.ready)
	case !w.ended().IsZero():
		if back := w.ended().Add(restartAfter); w.now.Before(back) {
			return Step{Again: back}
		}

		w.start(w.now, w.restarts()+1, script.ready)
	default:
		w.start(w.since(), w.restarts(), script.ready)
	}

	if script.runsFor < 0 {
		return w.step(time.Time{})
	}

	if end := w.since().Add(script.runsFor); w.now.Before(end) {
		return w.step(end)
	}

	switch {
	case policy == corev1.RestartPolicyAlways, policy == corev1.RestartPolicyOnFailure && script.exitCode != 0:
		w.pause(script.exitCode)

		return w.step(w.now.Add(restartAfter))
	case script.exitCode != 0:
		w.end(corev1.PodFailed, script.exitCode, "")
	default:
		w.end(corev1.PodSucceeded, 0, "")
	}

	return w.step(time.Time{})
}

// over tells whether a pod has ended for good.
func over(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
