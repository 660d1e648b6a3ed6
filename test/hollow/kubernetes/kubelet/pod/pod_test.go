// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/test/hollow/kubernetes/kubelet/pod"
)

var begin = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// told is something that happens to a pod at a time after it was bound.
type told struct {
	at   time.Duration
	what func(*corev1.Pod, *pod.Host)
}

// life is what is seen of a pod: each phase with its ready containers, restarts and exit code, at its second.
func life(t *testing.T, p *corev1.Pod, until time.Duration, happens ...told) []string {
	t.Helper()

	host := pod.Host{Address: netip.MustParseAddr("127.0.16.11"), Network: netip.MustParsePrefix("10.244.0.0/16"), Boot: "one"}

	var seen []string

	for now := time.Duration(0); now <= until; now += time.Second {
		for _, h := range happens {
			if h.at == now {
				h.what(p, &host)
			}
		}

		// More changes than this at one time would be a loop.
		for range 4 {
			step := pod.Next(p, host, begin.Add(now))
			if !step.Again.IsZero() && !step.Again.After(begin.Add(now)) {
				t.Fatalf("at %s it is to be looked at again at %s", now, step.Again)
			}

			if step.Remove {
				return append(seen, now.String()+" removed")
			}

			if step.Status == nil {
				break
			}

			p.Status = *step.Status
			if line := now.String() + " " + show(p.Status); len(seen) == 0 || seen[len(seen)-1] != line {
				seen = append(seen, line)
			}
		}
	}

	return seen
}

func show(status corev1.PodStatus) string {
	out := []string{string(status.Phase)}
	container := status.ContainerStatuses[0]

	if container.Ready {
		out = append(out, "ready")
	}

	if container.State.Waiting != nil {
		out = append(out, container.State.Waiting.Reason)
	}

	if container.State.Terminated != nil {
		out = append(out, "exit", string(rune('0'+container.State.Terminated.ExitCode/100)), string(rune('0'+container.State.Terminated.ExitCode/10%10)), string(rune('0'+container.State.Terminated.ExitCode%10)))
	}

	if container.RestartCount > 0 {
		out = append(out, "restarted", string(rune('0'+container.RestartCount)))
	}

	return strings.Join(out, " ")
}

func TestTheLifeOfAPod(t *testing.T) {
	t.Parallel()

	deleted := func(at, grace time.Duration) told {
		return told{at, func(p *corev1.Pod, _ *pod.Host) {
			p.DeletionTimestamp = &metav1.Time{Time: begin.Add(at + grace)}
			p.DeletionGracePeriodSeconds = ptr.To(int64(grace / time.Second))
		}}
	}
	reboot := func(at time.Duration) told {
		return told{at, func(_ *corev1.Pod, h *pod.Host) { h.Boot = "two" }}
	}
	says := func(at time.Duration, annotation, value string) told {
		return told{at, func(p *corev1.Pod, _ *pod.Host) { p.Annotations[annotation] = value }}
	}

	for _, test := range []struct {
		name    string
		policy  corev1.RestartPolicy
		says    map[string]string
		image   string
		happens []told
		want    []string
	}{
		{name: "of a Deployment runs", want: []string{"0s Running ready"}},
		{name: "of a Job succeeds", policy: corev1.RestartPolicyNever, want: []string{"0s Running ready", "1s Succeeded exit 0 0 0"}},
		{
			name: "that fails after a while", policy: corev1.RestartPolicyNever, says: map[string]string{pod.RunsFor: "5s", pod.ExitCode: "3"},
			want: []string{"0s Running ready", "5s Failed exit 0 0 3"},
		},
		{
			name: "that takes forever", policy: corev1.RestartPolicyNever, says: map[string]string{pod.RunsFor: "forever"},
			want: []string{"0s Running ready"},
		},
		{
			name: "that fails is started again, where it is to be", policy: corev1.RestartPolicyOnFailure, says: map[string]string{pod.ExitCode: "1"},
			want: []string{
				"0s Running ready", "1s Running CrashLoopBackOff", "11s Running ready restarted 1", "12s Running CrashLoopBackOff restarted 1",
				"22s Running ready restarted 2", "23s Running CrashLoopBackOff restarted 2",
			},
		},
		{
			name: "that isn't ready until it says so", says: map[string]string{pod.Ready: "false"},
			happens: []told{says(3*time.Second, pod.Ready, "true"), says(5*time.Second, pod.Ready, "false")},
			want:    []string{"0s Running", "3s Running ready", "5s Running"},
		},
		{
			name: "that is deleted ends at once", happens: []told{deleted(5*time.Second, 30*time.Second)},
			want: []string{"0s Running ready", "5s Succeeded exit 0 0 0", "5s removed"},
		},
		{
			name: "of a Job that is deleted isn't done", policy: corev1.RestartPolicyNever, says: map[string]string{pod.RunsFor: "20s"},
			happens: []told{deleted(5*time.Second, 30*time.Second)},
			want:    []string{"0s Running ready", "5s Failed exit 1 4 3", "5s removed"},
		},
		{
			name: "that takes its time to end", says: map[string]string{pod.StopsAfter: "7s"}, happens: []told{deleted(5*time.Second, 10*time.Second)},
			want: []string{"0s Running ready", "12s Succeeded exit 0 0 0", "12s removed"},
		},
		{
			name: "that doesn't listen is killed", says: map[string]string{pod.StopsAfter: "1h"}, happens: []told{deleted(5*time.Second, 10*time.Second)},
			want: []string{"0s Running ready", "15s Failed exit 1 3 7", "15s removed"},
		},
		{
			name: "that can't be killed stays, until its machine is restarted", says: map[string]string{pod.StopsAfter: "never"},
			happens: []told{deleted(5*time.Second, 2*time.Second), reboot(18 * time.Second)},
			want:    []string{"0s Running ready", "18s Failed exit 2 5 5", "18s removed"},
		},
		{
			name: "whose machine is restarted starts again", happens: []told{reboot(8 * time.Second)},
			want: []string{"0s Running ready", "8s Running ready restarted 1"},
		},
		{
			name: "of a Job whose machine is restarted failed", policy: corev1.RestartPolicyNever, says: map[string]string{pod.RunsFor: "20s"},
			happens: []told{reboot(8 * time.Second)},
			want:    []string{"0s Running ready", "8s Failed exit 2 5 5"},
		},
		{name: "whose image is nowhere waits", image: "web:missing", want: []string{"0s Pending ImagePullBackOff"}},
		{
			name: "whose image is nowhere can be deleted", image: "web:missing", happens: []told{deleted(2*time.Second, 30*time.Second)},
			want: []string{"0s Pending ImagePullBackOff", "2s Failed exit 1 3 7", "2s removed"},
		},
		{name: "whose annotation means nothing says so", says: map[string]string{pod.RunsFor: "long"}, want: []string{"0s Pending CreateContainerConfigError"}},
		{name: "that is a mirror is left alone", says: map[string]string{corev1.MirrorPodAnnotationKey: "hash"}, want: nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u", Annotations: map[string]string{}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
			}
			if test.policy != "" {
				p.Spec.RestartPolicy = test.policy
			}

			if test.image != "" {
				p.Spec.Containers[0].Image = test.image
			}

			for key, value := range test.says {
				p.Annotations[key] = value
			}

			if diff := cmp.Diff(test.want, life(t, p, 25*time.Second, test.happens...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPodHasAnAddressOfTheClustersOrTheNodes(t *testing.T) {
	t.Parallel()

	network := netip.MustParsePrefix("10.244.0.0/16")
	host := pod.Host{Address: netip.MustParseAddr("127.0.16.11"), Network: network, Boot: "one"}

	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	if got := pod.Next(p, host, begin).Status.PodIP; !network.Contains(netip.MustParseAddr(got)) {
		t.Errorf("got %s, want one of %s", got, network)
	}

	p.Spec.HostNetwork = true
	if got := pod.Next(p, host, begin).Status.PodIP; got != "127.0.16.11" {
		t.Errorf("in the node's network: got %s, want the node's", got)
	}
}
