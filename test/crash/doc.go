// SPDX-License-Identifier: Apache-2.0

// Package crash kills ichor-controller and the bootstrap of a first node at every write, one after the other, while five
// machines are found, approved and provisioned. The end must be the one that there is without a kill.
package crash
