// SPDX-License-Identifier: Apache-2.0

// Package drain takes work away from a Node before its machine goes down, and gives the Node back afterwards: cordon,
// evict, wait until the volumes are detached, uncordon. It owns the mark by which a cordon of Ichor's is told from a
// person's, and the decision which pods stay. Each call is one bounded pass that looks at what is there, does what is to be
// done and says what is waited for; it never sleeps, keeps nothing between two calls, and may be repeated at any time. It
// never evicts past a PodDisruptionBudget unless an operation says so.
package drain
