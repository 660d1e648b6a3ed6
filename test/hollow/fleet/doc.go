// SPDX-License-Identifier: Apache-2.0

// Package fleet describes hollow machines: the fleet file, its parser and checks, and a generator of fleets.
//
// It owns what a machine is made of before it is switched on (SMBIOS, NICs, disks, what is installed). It never starts
// anything; test/hollow/node does.
package fleet
