// SPDX-License-Identifier: Apache-2.0

// Package machineconfig turns a secrets bundle, a cluster and an approved machine into the configuration that the
// machine is sent: the base of Talos' own generator, and what approval decided as typed documents. It is pure: no clock,
// no network, no state; the same input gives the same bytes.
package machineconfig
