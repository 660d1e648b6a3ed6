// SPDX-License-Identifier: Apache-2.0

// Package node is one hollow Talos machine: its power, its boots, its Talos API.
//
// A Node lives as long as the process hosts it. It keeps a folder (test/hollow/disk) for what survives a power cut. Each
// boot is a new value (boot) with what a reboot loses: events, COSI resources, the maintenance CA, the boot id. What
// Kubernetes needs is done by a workload.Factory; the node never looks inside.
//
// Tests use New, PowerOn, WaitFor, Status and the faults (Wipe, ChangeAddress, SwapNIC, …); nothing in the product may
// import this package.
package node
