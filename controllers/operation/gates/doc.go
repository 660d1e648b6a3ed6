// SPDX-License-Identifier: Apache-2.0

// Package gates answers whether the next machine of an operation may begin: by the windows of the operation, and by the
// gates that its author gave it, over any Kubernetes object or by a Job that must succeed. It owns those Jobs, and the
// words in which a person is told what is waited for. Every answer is made anew from what is there now, so it may be asked
// again at any time; it never waits itself, keeps nothing between two questions, and knows nothing of etcd or machines.
package gates
