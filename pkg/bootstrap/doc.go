// SPDX-License-Identifier: Apache-2.0

// Package bootstrap brings up the first node of a cluster, which can't be approved through an API that it is yet to
// carry: secrets bundle, configuration, first apply, etcd, the Kubernetes API, and then Ichor's own resources with the
// node entered as an adopted and approved machine. Every step looks at what is there before it acts and is written to
// a journal first, so a run that was cut off is resumed by calling Run again with the same state directory. Etcd is
// bootstrapped here, exactly once, and nowhere else.
package bootstrap
