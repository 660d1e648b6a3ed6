// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor/talosschema"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestWhatAnOlderTalosDoesntKnow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec string
		want map[string]string
	}{
		"a document":               {`{documents: [{apiVersion: v1alpha1, kind: VRFConfig, name: red}]}`, map[string]string{"spec.documents[0].kind": "VRFConfig only since v1.13"}},
		"one that it had":          {`{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data}]}`, nil},
		"a field of one":           {`{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, mount: {secure: true}}]}`, map[string]string{"spec.documents[0].mount": "this field"}},
		"a field deep in one":      {`{documents: [{apiVersion: v1alpha1, kind: ExistingVolumeConfig, name: a, mount: {readOnly: true, secure: false}}]}`, map[string]string{"spec.documents[0].mount.secure": "this field"}},
		"an argument given twice":  {`{cluster: {apiServer: {extraArgs: {a: "1", b: ["1", "2"]}}}}`, map[string]string{"spec.cluster.apiServer.extraArgs.b": "a list here"}},
		"a field of the network":   {`{cluster: {network: {cni: {name: flannel, flannel: {kubeNetworkPoliciesEnabled: true}}}}}`, map[string]string{"spec.cluster.network.cni.flannel.kubeNetworkPoliciesEnabled": "this field"}},
		"a document that goes":     {`{documents: [{apiVersion: v1alpha1, kind: KubeSpanConfig, $patch: delete}]}`, nil},
		"arguments that go":        {`{cluster: {apiServer: {extraArgs: {$patch: delete}}}}`, nil},
		"several, in several ways": {`{machine: {kubelet: {extraArgs: {a: [x]}}}, documents: [{apiVersion: v1alpha1, kind: EnvironmentConfig, variables: {A: b}}]}`, map[string]string{"spec.machine.kubelet.extraArgs.a": "a list here", "spec.documents[0].kind": "EnvironmentConfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := specParts(t, c.spec)
			sameFaults(t, CheckVersion(parts, "v1.12.7", field.NewPath("spec")), c.want)
			for _, newer := range []string{"v1.13.0", "1.14.2", "v1.15.0-alpha.0", "unreadable", ""} {
				sameFaults(t, CheckVersion(parts, newer, field.NewPath("spec")), nil)
			}
		})
	}
}

// What the table names is there: a name that is misspelt, or that a later machinery drops, would do nothing.
func TestTheAdditionsAreInTalosSchema(t *testing.T) {
	t.Parallel()
	for since, news := range additions {
		for _, addition := range news {
			if addition.document == MainDocument {
				continue
			}
			if talosschema.Document(addition.document) == nil {
				t.Errorf("%s: the machinery has no document %s", since, addition.document)
				continue
			}
			if len(addition.path) > 0 {
				schema := talosschema.Document(addition.document)
				if _, there := schema.Properties[addition.path[0]]; !there {
					t.Errorf("%s: document %s has no field %s", since, addition.document, addition.path[0])
				}
			}
		}
	}
}

func TestAMachineOfAnOlderTalosGetsNothingThatItDoesntKnow(t *testing.T) {
	t.Parallel()
	const args = `{cluster: {apiServer: {extraArgs: {feature-gates: [A=true, B=true]}}}}`
	for name, c := range map[string]struct {
		spec                   string
		maintenance, installed string
		worker, refused        bool
	}{
		"it runs the older":               {spec: `{documents: [{apiVersion: v1alpha1, kind: EnvironmentConfig, variables: {A: b}}]}`, installed: "v1.12.7", refused: true},
		"it reads with the older first":   {spec: `{documents: [{apiVersion: v1alpha1, kind: EnvironmentConfig, variables: {A: b}}]}`, maintenance: "v1.12.7", installed: "v1.13.9", refused: true},
		"it runs the newer":               {spec: `{documents: [{apiVersion: v1alpha1, kind: EnvironmentConfig, variables: {A: b}}]}`, installed: "v1.13.9"},
		"a control plane":                 {spec: args, installed: "v1.12.7", refused: true},
		"a worker, which gets none of it": {spec: args, installed: "v1.12.7", worker: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testMachine()
			m.Spec.Role = v1alpha1.RoleControlPlane
			if c.worker {
				m.Spec.Role = v1alpha1.RoleWorker
			}
			in := inputs(t, m, testPatch(t, "tuning", c.spec))
			in.Facts.MaintenanceVersion, in.Facts.Versions.Talos, in.Facts.Versions.Kubernetes = c.maintenance, c.installed, "v1.34.1"
			_, err := Render(in)
			var fault *PatchError
			switch {
			case !c.refused && err != nil:
				t.Errorf("refused: %v", err)
			case c.refused && (!errors.As(err, &fault) || fault.Path == "" || !strings.Contains(fault.Reason, "v1.12.7")):
				t.Errorf("got %v, want the patch, the field and the machine's version", err)
			}
		})
	}
}
