// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const prefix = "hollow.ichor.maesh.dev/"

// Annotations by which a pod says what its program does.
const (
	// RunsFor is how long the program runs before it ends by itself: a duration, or "forever". A pod that is to be started
	// again when it ends (restartPolicy Always) runs forever unless it says otherwise, any other one a second.
	RunsFor = prefix + "runs-for"
	// ExitCode is what the program ends with by itself, 0 unless said.
	ExitCode = prefix + "exit-code"
	// Ready is "false" while the program isn't ready.
	Ready = prefix + "ready"
	// StopsAfter is how long the program takes to end when it is told to: a duration, at once unless said, and never longer
	// than the pod's grace, after which it is killed. With "never" it can't be killed either, as one that waits for a disk.
	StopsAfter = prefix + "stops-after"
)

const (
	forever = "forever"
	never   = "never"
	// shortRun is how long a program runs that is meant to end.
	shortRun = time.Second
)

// script is what a pod's program does.
type script struct {
	// runsFor is negative for a program that doesn't end by itself.
	runsFor  time.Duration
	exitCode int32
	ready    bool
	// stopsAfter is negative for a program that can't be ended.
	stopsAfter time.Duration
}

// scriptOf reads a pod's annotations.
func scriptOf(pod *corev1.Pod) (script, error) {
	out := script{runsFor: shortRun, ready: pod.Annotations[Ready] != "false"}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		out.runsFor = -1
	}

	for _, length := range []struct {
		annotation, endless string
		into                *time.Duration
	}{{RunsFor, forever, &out.runsFor}, {StopsAfter, never, &out.stopsAfter}} {
		text, said := pod.Annotations[length.annotation]

		switch parsed, err := time.ParseDuration(text); {
		case !said:
		case text == length.endless:
			*length.into = -1
		case err != nil || parsed < 0:
			return out, fmt.Errorf("annotation %s: %q is neither a duration nor %q", length.annotation, text, length.endless)
		default:
			*length.into = parsed
		}
	}

	if text, said := pod.Annotations[ExitCode]; said {
		code, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return out, fmt.Errorf("annotation %s: %q is not within 0 to 255", ExitCode, text)
		}

		out.exitCode = int32(code)
	}

	return out, nil
}

// absentImage returns an image of the pod that can't be pulled: one whose tag is "missing", as for the machine itself.
func absentImage(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if strings.HasSuffix(container.Image, ":missing") {
			return container.Image
		}
	}

	return ""
}
