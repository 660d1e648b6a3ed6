// SPDX-License-Identifier: Apache-2.0

package killer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What operations write kills once at each state of it; nothing else does, and a claim is given back only after it was taken.
func TestOperationsWritesKill(t *testing.T) {
	t.Parallel()
	k, keys := opened(t, Options{Operations: true})
	const root = "/apis/ichor.maesh.dev/v1alpha1/"
	for _, each := range []struct{ path, body string }{
		{"talosclusters/local/status", `{"status":{"phase":"Ready"}}`},
		{"talosclusters/local/status", `{"status":{"activeOperation":{"name":"upgrade"}}}`},
		{"talosoperations/upgrade/status", `{"status":{"phase":"Running","message":"one","current":"m-1","machines":[{"name":"m-1","step":"Cordon","state":"Intended"}]}}`},
		{"talosoperations/upgrade/status", `{"status":{"phase":"Running","message":"two","current":"m-1","machines":[{"name":"m-1","step":"Cordon","state":"Intended"}]}}`},
		{"talosoperations/upgrade/status", `{"status":{"phase":"Running","current":"m-1","machines":[{"name":"m-1","step":"Cordon","state":"Verified","cordoned":true}]}}`},
		{"talosconfigpatches/tuning/status", `{"status":{"machines":{"applied":2}}}`},
		{"talosmachines/m-1/status", `{"status":{"phase":"Running"}}`},
		{"talosmachines/m-1/status", `{"status":{"settledVersions":{"talos":"v1.14.1","schematicID":"0123456789abcdef"}}}`},
		{"talosclusters/local/status", `{"status":{"phase":"Ready"}}`},
	} {
		w, writes := describe(request(t, "PUT", root+each.path, []byte(each.body)))
		if !writes {
			t.Fatalf("%s doesn't count as a write", each.path)
		}
		k.At(Answered, w)
	}
	want := []string{
		"answered update talosclusters/status local claim of upgrade",
		"answered update talosoperations/status upgrade Running at m-1 m-1=Cordon/Intended",
		"answered update talosoperations/status upgrade Running at m-1 m-1=Cordon/Verified+cordoned",
		"answered update talosmachines/status m-1 settled at v1.14.1 0123456789ab",
		"answered update talosclusters/status local claim of nobody",
	}
	if diff := cmp.Diff(want, keys()); diff != "" {
		t.Error(diff)
	}
}
