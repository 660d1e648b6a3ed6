// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// maxKubeletSkew is how many minor versions a kubelet may be older than kube-apiserver.
// Source: Kubernetes, version skew policy (since 1.28).
const maxKubeletSkew = 3

// parse reads a version as images and Nodes have it.
func parse(text string) (*version.Version, error) {
	parsed, err := version.ParseSemantic(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no version of Kubernetes: expected the form v1.36.6", text)
	}
	return parsed, nil
}

// minors is by how many minor versions a is newer than b.
func minors(a, b *version.Version) int { return int(a.Minor()) - int(b.Minor()) } //nolint:gosec // they have two digits

// WithV is a version as images and Nodes write it.
func WithV(text string) string { return "v" + strings.TrimPrefix(text, "v") }

// Same tells whether two texts are the same version.
func Same(a, b string) bool { return a != "" && b != "" && WithV(a) == WithV(b) }

// Older tells whether a version is older than another one. What can't be read is not.
func Older(a, b string) bool {
	one, err := parse(a)
	if err != nil {
		return false
	}
	other, err := parse(b)
	return err == nil && one.LessThan(other)
}

// checkPath says why there is no way from one version to another: upgrades go from one minor version to the next, and no
// version is taken back, as etcd may hold what the older one can't read.
func checkPath(from, to *version.Version) string {
	switch {
	case from.Major() != to.Major():
		return fmt.Sprintf("there is no way from v%s to v%s", from, to)
	case to.LessThan(from):
		return fmt.Sprintf("v%s runs, and v%s is older: Kubernetes can't be taken back; restore a backup instead", from, to)
	case minors(to, from) > 1:
		return fmt.Sprintf("v%s runs: upgrade to v1.%d first, as Kubernetes goes up by one minor version at a time", from, from.Minor()+1)
	default:
		return ""
	}
}
