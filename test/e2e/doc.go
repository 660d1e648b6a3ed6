// SPDX-License-Identifier: Apache-2.0

// Package e2e tests all of Ichor together, on one local stack per run: what a newcomer, an operator and an impostor
// meet. Its tests run one after the other and use up the machines of the fleet.
package e2e
