// SPDX-License-Identifier: Apache-2.0

// Package world runs what Ichor's API is made of, each part in a process of its own and with a wire before each of its
// neighbours: three members of etcd, a kube-apiserver, three ichor-apiservers and a balancer before them. Everything is
// real, TLS and delegated authorization too; there is no machine and no controller. A test kills, pauses and cuts off
// what it likes.
package world
