// SPDX-License-Identifier: Apache-2.0

// Package configwatch watches what configuration each configured machine runs, so that a change which somebody makes on a
// machine is seen when it is made. It owns one connection to each machine that answers and tells whoever compares
// configurations to look; it compares nothing, writes nothing and decides nothing. The regular look at each machine finds
// what a watch misses.
package configwatch
