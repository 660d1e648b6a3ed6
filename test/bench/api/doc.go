// SPDX-License-Identifier: Apache-2.0

// Api measures Ichor's API, served by ichor-apiserver behind the aggregation layer, beside the same types as custom
// resources with webhooks (package rival), on one real kube-apiserver and one real etcd, in turns. Memory is measured
// apart, each side with a kube-apiserver of its own. It prints a table, keeps it as JSON, and fails if an aim is missed.
//
// Clients speak plain HTTP with prepared bodies, so that what is measured are the servers. They are persons and accounts
// with client certificates and RBAC; nobody is in system:masters but who sets everything up. What is approved is put
// back straight in etcd after each round, the same for both.
package main
