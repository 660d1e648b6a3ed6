// SPDX-License-Identifier: Apache-2.0

// Package talosclient holds pkg/talos to hollow machines: the real protocol, from maintenance mode to a running control
// plane.
package talosclient
