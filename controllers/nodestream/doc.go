// SPDX-License-Identifier: Apache-2.0

// Package nodestream serves the logs of machines to ichor-apiserver, as a kubelet serves those of pods to the
// kube-apiserver: ichor-apiserver judges who may read, this server reads, with a certificate that may do no more than
// read. It changes nothing on a machine. Every replica serves, leading or not.
package nodestream
