// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Running is a kube-apiserver of a cluster.
type Running struct {
	// Where people find it: the name of a Node or of a machine.
	Where string
	// Version that it runs, or that it may run where it isn't seen.
	Version string
}

// Joining is the version of Kubernetes that a machine is given which joins a cluster. That is what the cluster is to have, but
// nothing newer than any kube-apiserver: an upgrade may be on its way, may have been given up, or isn't begun yet. because says
// for people why it is another one; empty if it isn't. The error says why there is none that fits.
func Joining(intent string, apiServers []Running) (given, because string, err error) {
	wanted, err := parse(intent)
	if err != nil {
		return "", "", err
	}
	oldest, newest := Running{}, Running{}
	var lowest, highest *version.Version
	for _, running := range apiServers {
		is, err := parse(running.Version)
		if err != nil {
			return "", "", fmt.Errorf("which kube-apiserver runs on %s isn't known: %w", running.Where, err)
		}
		if lowest == nil || is.LessThan(lowest) {
			oldest, lowest = running, is
		}
		if highest == nil || highest.LessThan(is) {
			newest, highest = running, is
		}
	}
	given, chosen := intent, wanted
	// A tag may say more than the version does; that alone makes it no older one.
	if lowest != nil && older(lowest, wanted) {
		given, chosen = WithV(oldest.Version), lowest
		because = fmt.Sprintf("kube-apiserver on %s is %s, which %s would be too new for; upgrade Kubernetes to bring all to %s", oldest.Where, given, WithV(intent), WithV(intent))
	}
	if highest != nil && minors(highest, chosen) > maxKubeletSkew {
		return "", "", fmt.Errorf("a kubelet %s is too old for kube-apiserver %s on %s (%d minor versions at most); raise spec.kubernetesVersion of the cluster",
			WithV(given), WithV(newest.Version), newest.Where, maxKubeletSkew)
	}
	return given, because, nil
}

// older tells whether one version comes before another one by its three numbers.
func older(one, other *version.Version) bool {
	return version.MajorMinor(one.Major(), one.Minor()).WithPatch(one.Patch()).LessThan(version.MajorMinor(other.Major(), other.Minor()).WithPatch(other.Patch()))
}
