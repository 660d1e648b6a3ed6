// SPDX-License-Identifier: Apache-2.0

// Package servingcertificate issues the serving certificate of ichor-apiserver from a small certificate authority of its
// own, renews both in time, and puts the authority into the APIService by which the kube-apiserver finds the server. It
// owns the Secrets ichor-apiserver-ca and ichor-apiserver-tls and the APIService's caBundle; it never touches one that
// somebody else looks after, such as cert-manager. It works before ichor-apiserver runs: the server waits for it.
package servingcertificate
