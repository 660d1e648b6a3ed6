// SPDX-License-Identifier: Apache-2.0

// Package pod is the life of a pod on a hollow node: what its status should be, and when it is gone. There is no container;
// how long its program runs, how it ends and what it does when it is told to is in the pod's annotations. Everything that is
// known of a pod is in the pod: a kubelet that starts again goes on where it was.
package pod
