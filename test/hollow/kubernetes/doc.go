// SPDX-License-Identifier: Apache-2.0

// Package kubernetes is what a configured hollow node runs: etcd, the Kubernetes control plane, trustd and the kubelet,
// all made from the applied machine configuration alone, as Talos does. It implements workload.Factory. etcd,
// kube-apiserver and kube-controller-manager are the real programs, started as child processes; the kubelet and trustd
// live in this process. It knows nothing of maintenance mode, disks, roles or the Talos API around it.
//
// kubernetes.go is the entrance; node.go is one boot of one node; plane.go starts and watches the control plane.
package kubernetes
