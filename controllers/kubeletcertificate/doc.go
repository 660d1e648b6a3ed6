// SPDX-License-Identifier: Apache-2.0

// Package kubeletcertificate approves the serving certificates that kubelets ask for: those of the nodes of approved
// machines, for the names and addresses of the very machine, in clusters that ask for them
// (spec.hardening.kubeletServingCertificates). It owns the approval and the denial of these requests; it never touches
// those of nodes that are no machine's of Ichor's, signs nothing, and writes nothing else.
package kubeletcertificate
