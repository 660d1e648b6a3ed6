// SPDX-License-Identifier: Apache-2.0

// Fleet measures how a large fleet comes up: hollow machines are switched on together, found by one scan, approved by
// one call of the command line tool, and provisioned until each is Ready as a Node. Ichor, Kubernetes and the hollow
// machines are the real programs, each in its own process. It prints a table, keeps it as JSON, and fails if an aim is
// missed.
//
// What a machine takes by itself is set: the time of its installation and of its reboot. With N machines of which P may
// be on their way at a time, they can't all be ready before N/P (rounded up) times both; that is what the time is
// compared with.
package main
