// SPDX-License-Identifier: Apache-2.0

// Package direct looks at a cluster over Talos alone, for the day when the Kubernetes API or etcd's quorum is gone. It
// holds the secrets bundle against what answers, says what is lost and what the next safe move is, and changes nothing:
// the certificates that it makes for itself may only read, live for an hour at most and never touch a disk.
package direct
