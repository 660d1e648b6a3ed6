// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhichAPIVersionsInUseKeepAClusterFromAnUpgrade(t *testing.T) {
	t.Parallel()
	addresses := API{Group: "networking.k8s.io", Version: "v1beta1", Resource: "ipaddresses"}
	for name, c := range map[string]struct {
		requested Requested
		to        string
		// gone is the version that the finding names; empty if there is none.
		gone string
	}{
		"gone in the target":                       {Requested{addresses, "1.37"}, "v1.37.2", "1.37"},
		"there till then":                          {Requested{addresses, "1.37"}, "v1.36.6", ""},
		"served once more by a switch":             {Requested{API{"storage.k8s.io", "v1alpha1", "volumeattributesclasses"}, "1.35"}, "v1.36.0", "1.35"},
		"put off after the old version was made":   {Requested{API{"resource.k8s.io", "v1beta1", "resourceclaims"}, "1.36"}, "v1.37.0", ""},
		"another resource of that version":         {Requested{API{"networking.k8s.io", "v1beta1", "ingresses"}, ""}, "v1.37.0", ""},
		"no table knows it, kube-apiserver does":   {Requested{API{"example.k8s.io", "v1beta1", "things"}, "1.36"}, "v1.36.0", "1.36"},
		"it stays until nobody knows when":         {Requested{API{"", "v1", "componentstatuses"}, ""}, "v1.37.0", ""},
		"what is announced can't be read":          {Requested{API{"example.k8s.io", "v1beta1", "things"}, "soon"}, "v1.37.0", ""},
		"the target is a version before it's gone": {Requested{API{"example.k8s.io", "v1beta1", "things"}, "1.38"}, "v1.37.9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findings := CheckAPIs(InUse{"cp-2": {c.requested}, "cp-1": {c.requested}}, c.to)
			switch {
			case c.gone == "" && len(findings) > 0:
				t.Errorf("found %v", findings)
			case c.gone == "":
			case len(findings) != 2 || !findings[0].Blocks || findings[0].Check != CheckAPIVersions ||
				!strings.Contains(findings[0].Message, c.requested.String()+" is in use, and Kubernetes "+c.gone+" doesn't serve it") ||
				!strings.Contains(findings[0].Message, "cp-1, cp-2") || !strings.Contains(findings[1].Message, "audit log"):
				t.Errorf("found %v", findings)
			}
		})
	}
}

func TestAPIsGoAwayAtMinorVersionsOnly(t *testing.T) {
	t.Parallel()
	got := map[string]bool{}
	for _, from := range []string{"v1.36.4", "v1.35.9", "", "latest"} {
		got[from] = CrossesMinor(from, "v1.36.6")
	}
	if diff := cmp.Diff(map[string]bool{"v1.36.4": false, "v1.35.9": true, "": true, "latest": true}, got); diff != "" {
		t.Error(diff)
	}
}
