// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestWhatAPatchLeavesAlone(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		spec   string
		cilium bool
		// want are the faulty fields, each with a word of who decides.
		want map[string]string
	}{
		"the role":                {spec: `{machine: {type: worker}}`, want: map[string]string{"spec.machine.type": "spec.role"}},
		"the install disk":        {spec: `{machine: {install: {disk: /dev/sda, diskSelector: {serial: x}}}}`, want: map[string]string{"spec.machine.install.disk": "spec.disks", "spec.machine.install.diskSelector": "spec.disks"}},
		"the install section":     {spec: `{machine: {install: {$patch: delete}}}`, want: map[string]string{"spec.machine.install": "spec.disks"}},
		"the hostname":            {spec: `{machine: {network: {hostname: x}}, documents: [{apiVersion: v1alpha1, kind: HostnameConfig, hostname: x}]}`, want: map[string]string{"spec.machine.network.hostname": "spec.hostname", "spec.documents[0]": "spec.hostname"}},
		"where EPHEMERAL lies":    {spec: `{documents: [{apiVersion: v1alpha1, kind: VolumeConfig, name: EPHEMERAL, provisioning: {diskSelector: {match: system_disk}}}]}`, want: map[string]string{"spec.documents[0].provisioning.diskSelector": "spec.disks"}},
		"addresses":               {spec: `{documents: [{apiVersion: v1alpha1, kind: LinkConfig, name: primary, mtu: 9000, addresses: [{address: 10.0.0.1/24}]}]}`, want: map[string]string{"spec.documents[0].addresses": "spec.network"}},
		"accepted CAs":            {spec: `{machine: {acceptedCAs: []}}`, want: map[string]string{"spec.machine.acceptedCAs": "rotateCA"}},
		"the cluster's endpoint":  {spec: `{cluster: {controlPlane: {endpoint: "https://x:6443"}}}`, want: map[string]string{"spec.cluster.controlPlane": "spec.controlPlane.endpoint"}},
		"the pods' network":       {spec: `{cluster: {network: {podSubnets: [10.1.0.0/16]}}}`, want: map[string]string{"spec.cluster.network.podSubnets": "spec.network"}},
		"images":                  {spec: `{machine: {kubelet: {image: x}, install: {image: y}}, cluster: {apiServer: {image: z}}}`, want: map[string]string{"spec.machine.kubelet.image": "kubernetesUpgrade", "spec.machine.install.image": "talosUpgrade", "spec.cluster.apiServer.image": "kubernetesUpgrade"}},
		"Cilium's place":          {spec: `{cluster: {network: {cni: {name: flannel}}, proxy: {disabled: false}}}`, cilium: true, want: map[string]string{"spec.cluster.network.cni": "spec.cni", "spec.cluster.proxy.disabled": "spec.cni"}},
		"another network, though": {spec: `{cluster: {network: {cni: {name: flannel}}}}`},
		"the rest of EPHEMERAL":   {spec: `{documents: [{apiVersion: v1alpha1, kind: VolumeConfig, name: EPHEMERAL, provisioning: {maxSize: 10GiB}}]}`},
		"secrets in disguise": {
			spec: `{machine: {env: {A: b}}, secretValues: [{path: /machine/token, secretKeyRef: {name: s, key: k}}, {path: /machine/env/B, secretKeyRef: {name: s, key: k}}]}`,
			want: map[string]string{"spec.secretValues[0].path": "secrets bundle"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := CheckOwned(specParts(t, c.spec), c.cilium, field.NewPath("spec"))
			sameFaults(t, errs, c.want)
		})
	}
}

func TestAPatchForWorkersHasNothingOfControlPlanes(t *testing.T) {
	t.Parallel()
	parts := specParts(t, `{machine: {sysctls: {a: b}, controlPlane: {scheduler: {disabled: true}}}, cluster: {apiServer: {}, discovery: {enabled: true}}}`)
	sameFaults(t, CheckRole(parts, true, field.NewPath("spec")), map[string]string{"spec.machine.controlPlane": "control planes", "spec.cluster.apiServer": "control planes"})
	sameFaults(t, CheckRole(parts, false, field.NewPath("spec")), nil)
}

func TestWhereASecretMayGo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec string
		want map[string]string
	}{
		"a text":                      {spec: `{machine: {env: {A: b}}, secretValues: [{path: /machine/env/B, secretKeyRef: {name: s, key: k}}]}`},
		"a section that isn't there":  {spec: `{machine: {env: {A: b}}, secretValues: [{path: /cluster/x, secretKeyRef: {name: s, key: k}}]}`, want: map[string]string{"spec.secretValues[0].path": "no field that Talos knows"}},
		"an element of a list":        {spec: `{machine: {files: [{path: /a, op: create, permissions: 384}]}, secretValues: [{path: /machine/files/0/content, secretKeyRef: {name: s, key: k}}]}`},
		"behind a list's end":         {spec: `{machine: {files: [{path: /a, op: create}]}, secretValues: [{path: /machine/files/1/content, secretKeyRef: {name: s, key: k}}]}`, want: map[string]string{"spec.secretValues[0].path": "no element"}},
		"a number":                    {spec: `{machine: {files: [{path: /a, op: create}]}, secretValues: [{path: /machine/files/0/permissions, secretKeyRef: {name: s, key: k}}]}`, want: map[string]string{"spec.secretValues[0].path": "no text"}},
		"a field that has a value":    {spec: `{machine: {env: {A: b}}, secretValues: [{path: /machine/env/A, secretKeyRef: {name: s, key: k}}]}`, want: map[string]string{"spec.secretValues[0].path": "has a value already"}},
		"a document's field":          {spec: `{documents: [{apiVersion: v1alpha1, kind: RegistryAuthConfig, name: ghcr.io, username: me}], secretValues: [{path: /documents/RegistryAuthConfig/ghcr.io/password, secretKeyRef: {name: s, key: k}}]}`},
		"a document that isn't there": {spec: `{machine: {env: {A: b}}, secretValues: [{path: /documents/RegistryAuthConfig/ghcr.io/password, secretKeyRef: {name: s, key: k}}]}`, want: map[string]string{"spec.secretValues[0].path": "no document RegistryAuthConfig/ghcr.io"}},
		"a key of a certificate":      {spec: `{documents: [{apiVersion: v1alpha1, kind: RegistryTLSConfig, name: a.example, clientIdentity: {cert: x}}], secretValues: [{path: /documents/RegistryTLSConfig/a.example/clientIdentity/key, secretKeyRef: {name: s, key: k}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sameFaults(t, CheckPatch(specParts(t, c.spec), field.NewPath("spec")), c.want)
		})
	}
}

func specParts(t *testing.T, spec string) PatchParts {
	t.Helper()
	patch := testPatch(t, "p", spec)
	return PartsOf(patch)
}

func sameFaults(t *testing.T, errs field.ErrorList, want map[string]string) {
	t.Helper()
	for path, word := range want {
		if !slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Field == path && strings.Contains(err.Error(), word) }) {
			t.Errorf("no fault at %s that says %q", path, word)
		}
	}
	if len(errs) != len(want) {
		t.Errorf("got the faults %v, want %d", errs, len(want))
	}
}
