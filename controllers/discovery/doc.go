// SPDX-License-Identifier: Apache-2.0

// Package discovery looks for machines at the addresses of each cluster's spec.discovery, and keeps an object for each
// that waits in maintenance mode: who it is, what it has, where it answers, and whether its identity can be relied on.
// It is level-triggered: a scan of the same network writes nothing. It creates machines and writes status; it never
// changes a spec, and never writes to a machine.
package discovery
