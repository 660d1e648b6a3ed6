// SPDX-License-Identifier: Apache-2.0

// Package localstack runs all of Ichor on loopback addresses: hollow machines, a real Kubernetes control plane on one
// of them, ichor-apiserver behind the aggregation layer, and ichor-controller. It owns the processes it starts and the
// folder they live in, and ends exactly those. Several stacks run side by side.
package localstack
