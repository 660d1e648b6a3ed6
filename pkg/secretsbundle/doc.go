// SPDX-License-Identifier: Apache-2.0

// Package secretsbundle holds a cluster's secrets: its certificate authorities, tokens and encryption keys, in the form
// that talosctl writes. It reads them from and makes them in a Kubernetes Secret, and issues the short-lived client
// certificates that Ichor works with. It never changes a bundle that exists, and nothing it returns as text (errors,
// String, hashes) holds any of a bundle's contents.
package secretsbundle
