// SPDX-License-Identifier: Apache-2.0

// Package talostest holds scripted machines behind the interfaces of pkg/talos, for tests of what decides about
// machines. They keep a log of every byte of configuration that reached them. Tests with the real protocol use hollow
// nodes instead.
package talostest
