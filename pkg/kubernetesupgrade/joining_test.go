// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade_test

import (
	"strings"
	"testing"

	"maesh.dev/ichor/pkg/kubernetesupgrade"
)

func TestWhatAMachineIsGivenThatJoins(t *testing.T) {
	t.Parallel()
	running := func(versions ...string) []kubernetesupgrade.Running {
		var out []kubernetesupgrade.Running
		for i, version := range versions {
			out = append(out, kubernetesupgrade.Running{Where: string(rune('a' + i)), Version: version})
		}
		return out
	}
	for name, test := range map[string]struct {
		intent     string
		apiServers []kubernetesupgrade.Running
		want       string
		because    string
		err        string
	}{
		"the first machine of a cluster":                     {intent: "v1.36.6", want: "v1.36.6"},
		"all run what is intended":                           {intent: "v1.36.6", apiServers: running("v1.36.6", "v1.36.6"), want: "v1.36.6"},
		"an upgrade is on its way":                           {intent: "v1.36.6", apiServers: running("v1.36.6", "v1.35.4"), want: "v1.35.4", because: "kube-apiserver on b is v1.35.4"},
		"no upgrade was begun yet":                           {intent: "v1.36.6", apiServers: running("v1.35.4"), want: "v1.35.4", because: "kube-apiserver on a is v1.35.4"},
		"a patch release is on its way":                      {intent: "v1.36.7", apiServers: running("v1.36.7", "v1.36.6"), want: "v1.36.6", because: "kube-apiserver on b is v1.36.6"},
		"an upgrade ran ahead of the intent":                 {intent: "v1.35.4", apiServers: running("v1.36.6"), want: "v1.35.4"},
		"three minor versions behind":                        {intent: "v1.33.9", apiServers: running("v1.36.6"), want: "v1.33.9"},
		"the intent is too old":                              {intent: "v1.32.9", apiServers: running("v1.36.6", "v1.35.4"), err: "a kubelet v1.32.9 is too old for kube-apiserver v1.36.6 on a"},
		"one whose tag says nothing":                         {intent: "v1.36.6", apiServers: running("v1.36.6", "latest"), err: "on b isn't known"},
		"an image of somebody's own of the intended version": {intent: "v1.36.6", apiServers: running("v1.36.6-own.1"), want: "v1.36.6"},
		"an intent that is no version":                       {intent: "newest", err: "is no version of Kubernetes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, because, err := kubernetesupgrade.Joining(test.intent, test.apiServers)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			if got != test.want || !strings.Contains(because, test.because) || (because == "") != (test.because == "") {
				t.Errorf("got %s because %q, want %s because %q", got, because, test.want, test.because)
			}
		})
	}
}
