// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// runtimeScheme begins the ID of a container, which tells the boot that it was started in.
const runtimeScheme = "hollow://"

// writer changes a copy of a pod's status.
type writer struct {
	pod    *corev1.Pod
	host   Host
	now    time.Time
	status *corev1.PodStatus
}

// first is the status of the first container; all containers of a pod start and end together.
func (w *writer) first() *corev1.ContainerStatus {
	if len(w.status.ContainerStatuses) == 0 {
		return &corev1.ContainerStatus{}
	}

	return &w.status.ContainerStatuses[0]
}

// started tells whether the pod's containers were ever started.
func (w *writer) started() bool { return w.first().ContainerID != "" }

// lost tells whether the containers are those of an earlier boot.
func (w *writer) lost() bool {
	return w.started() && !strings.HasPrefix(w.first().ContainerID, runtimeScheme+w.host.Boot+"/")
}

func (w *writer) restarts() int32 { return w.first().RestartCount }

// since is when the running containers were started.
func (w *writer) since() time.Time {
	if running := w.first().State.Running; running != nil {
		return running.StartedAt.Time
	}

	return w.now
}

// ended is when the containers ended that wait to be started again.
func (w *writer) ended() time.Time {
	if last := w.first().LastTerminationState.Terminated; last != nil && w.first().State.Running == nil {
		return last.FinishedAt.Time
	}

	return time.Time{}
}

// start shows running containers.
func (w *writer) start(since time.Time, restarts int32, ready bool) {
	last := w.first().LastTerminationState
	w.place()
	w.status.Phase = corev1.PodRunning
	w.containers(func(status *corev1.ContainerStatus) {
		running := true
		status.ContainerID = fmt.Sprintf("%s%s/%s/%s/%d", runtimeScheme, w.host.Boot, w.pod.UID, status.Name, restarts)
		status.Ready, status.Started, status.RestartCount, status.LastTerminationState = ready, &running, restarts, last
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Truncate(time.Second))}
	})
	w.conditions(ready, "ContainersNotReady")
}

// pause shows containers that ended and are to be started again.
func (w *writer) pause(code int32) {
	id, restarts, since := w.first().ContainerID, w.restarts(), w.since()
	w.containers(func(status *corev1.ContainerStatus) {
		status.ContainerID, status.RestartCount = id, restarts
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off " + restartAfter.String() + " restarting failed container"}
		status.LastTerminationState.Terminated = w.terminated(code, since, id)
	})
	w.conditions(false, "ContainersNotReady")
}

// end shows a pod that is over.
func (w *writer) end(phase corev1.PodPhase, code int32, message string) {
	id, restarts, since := w.first().ContainerID, w.restarts(), w.since()
	w.status.Phase = phase
	w.status.Message = message
	w.containers(func(status *corev1.ContainerStatus) {
		status.ContainerID, status.RestartCount = id, restarts
		status.State.Terminated = w.terminated(code, since, id)
	})
	w.conditions(false, "PodCompleted")
}

// hold shows a pod whose containers can't be started.
func (w *writer) hold(reason, message string) {
	w.place()
	w.status.Phase = corev1.PodPending
	w.containers(func(status *corev1.ContainerStatus) {
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	})
	w.conditions(false, "ContainersNotReady")
}

func (w *writer) terminated(code int32, since time.Time, id string) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}

	return &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, ContainerID: id,
		StartedAt: metav1.NewTime(since.Truncate(time.Second)), FinishedAt: metav1.NewTime(w.now.Truncate(time.Second)),
	}
}

// place gives the pod its addresses.
func (w *writer) place() {
	host := w.host.Address.String()
	address := host

	if !w.pod.Spec.HostNetwork && w.host.Network.IsValid() {
		address = addressOf(w.host.Network, w.pod.UID).String()
	}

	if w.status.StartTime == nil {
		started := metav1.NewTime(w.now.Truncate(time.Second))
		w.status.StartTime = &started
	}

	w.status.HostIP, w.status.HostIPs = host, []corev1.HostIP{{IP: host}}
	w.status.PodIP, w.status.PodIPs = address, []corev1.PodIP{{IP: address}}
}

// addressOf is a pod's address; nothing listens there. Two pods may be given the same one, which is unlikely.
func addressOf(network netip.Prefix, uid types.UID) netip.Addr {
	hash := fnv.New32a()
	hash.Write([]byte(uid)) //nolint:errcheck // never fails

	bits := hash.Sum32()
	address := network.Masked().Addr().As4()

	for i := range address {
		shift := 8 * (3 - i)
		// The bits of this byte that the prefix leaves free.
		free := byte(uint32(uint64(1)<<(32-network.Bits())-1) >> shift)
		address[i] |= byte(bits>>shift) & free
	}

	return netip.AddrFrom4(address)
}

// containers shows every container anew.
func (w *writer) containers(show func(*corev1.ContainerStatus)) {
	w.status.ContainerStatuses = statuses(w.pod.Spec.Containers, show)
	w.status.InitContainerStatuses = statuses(w.pod.Spec.InitContainers, func(status *corev1.ContainerStatus) {
		status.Ready = true
		status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed"}
	})
}

func statuses(containers []corev1.Container, show func(*corev1.ContainerStatus)) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus

	for _, container := range containers {
		status := corev1.ContainerStatus{Name: container.Name, Image: container.Image, ImageID: container.Image}
		show(&status)

		all = append(all, status)
	}

	return all
}

func (w *writer) conditions(ready bool, reason string) {
	value := corev1.ConditionFalse
	if ready {
		value, reason = corev1.ConditionTrue, ""
	}

	for _, condition := range []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: value, Reason: reason},
		{Type: corev1.PodReady, Status: value, Reason: reason},
	} {
		w.condition(condition)
	}
}

func (w *writer) condition(wanted corev1.PodCondition) {
	wanted.LastTransitionTime = metav1.NewTime(w.now.Truncate(time.Second))

	for i := range w.status.Conditions {
		is := &w.status.Conditions[i]
		if is.Type != wanted.Type {
			continue
		}

		if is.Status == wanted.Status {
			wanted.LastTransitionTime = is.LastTransitionTime
		}

		*is = wanted

		return
	}

	w.status.Conditions = append(w.status.Conditions, wanted)
}

// step is the report of a changed status.
func (w *writer) step(again time.Time) Step {
	if equality.Semantic.DeepEqual(&w.pod.Status, w.status) {
		return Step{Again: again}
	}

	return Step{Status: w.status, Again: again}
}
