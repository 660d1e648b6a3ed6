// SPDX-License-Identifier: Apache-2.0

// Package controlplane turns a machine configuration into what a Talos control plane runs: the command lines and
// configuration files of kube-apiserver and kube-controller-manager, the static pods that the kubelet mirrors, and the
// manifests Talos applies (Talos: internal/app/machined/pkg/controllers/k8s). It starts nothing and, but for the folder
// of configuration files, touches nothing.
package controlplane
