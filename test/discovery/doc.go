// SPDX-License-Identifier: Apache-2.0

// Package discovery runs the search for machines over hollow machines and servers that aren't Talos, against a whole API
// server.
package discovery
