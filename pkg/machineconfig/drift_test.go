// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// driftInputs is a machine with something in every kind of place.
func driftInputs(t *testing.T) Inputs {
	t.Helper()
	return inputs(t, testMachine(func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleControlPlane }),
		testPatch(t, "some", `{machine: {sysctls: {net.core.somaxconn: "4096"}, certSANs: [a.example, b.example, c.example], env: {A: b}, kernel: {modules: [{name: nbd, parameters: [a=1]}, {name: dm_crypt}]}}}`),
		testPatch(t, "volume", `{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {diskSelector: {match: "disk.transport == 'nvme'"}, minSize: 100GiB}}]}`),
		testPatch(t, "secret", `{machine: {env: {X: y}}, secretValues: [{path: /machine/env/PASSWORD, secretKeyRef: {name: proxy, key: password}}]}`),
	)
}

// edit changes a configuration as a person would, by its text.
func edit(t *testing.T, text []byte, old, replacement string) []byte {
	t.Helper()
	if bytes.Count(text, []byte(old)) != 1 {
		t.Fatalf("%q is %d times in the configuration, want once", old, bytes.Count(text, []byte(old)))
	}
	return bytes.Replace(text, []byte(old), []byte(replacement), 1)
}

func texts(differences []Difference) []string {
	var all []string
	for _, d := range differences {
		all = append(all, fmt.Sprintf("%s %s: want %s, have %s", d.Document, d.Path, d.Want, d.Have))
	}
	return all
}

func TestAHandMadeChangeIsOneDifference(t *testing.T) {
	t.Parallel()
	in := driftInputs(t)
	want := mustRender(t, in)
	masks := MasksOf(in.Patches)
	cases := map[string]struct {
		change func([]byte) []byte
		want   []string
	}{
		"nothing": {func(text []byte) []byte { return text }, nil},
		"a value": {
			func(text []byte) []byte {
				return edit(t, text, `net.core.somaxconn: "4096"`, `net.core.somaxconn: "1"`)
			},
			[]string{`v1alpha1 machine.sysctls["net.core.somaxconn"]: want 4096, have 1`},
		},
		"a key more": {
			func(text []byte) []byte {
				return edit(t, text, `net.core.somaxconn: "4096"`, "net.core.somaxconn: \"4096\"\n        vm.swappiness: \"1\"")
			},
			[]string{`v1alpha1 machine.sysctls["vm.swappiness"]: want , have 1`},
		},
		"a whole object gone": {
			func(text []byte) []byte {
				return edit(t, text, "    sysctls:\n        net.core.somaxconn: \"4096\"\n", "")
			},
			[]string{`v1alpha1 machine.sysctls: want {"net.core.somaxconn":"4096"}, have `},
		},
		"an element put in front": {
			func(text []byte) []byte {
				return edit(t, text, "        - a.example\n", "        - z.example\n        - a.example\n")
			},
			[]string{`v1alpha1 machine.certSANs[1]: want , have z.example`},
		},
		"an element taken out of the middle": {
			func(text []byte) []byte { return edit(t, text, "        - b.example\n", "") },
			[]string{`v1alpha1 machine.certSANs[2]: want b.example, have `},
		},
		"a list gone that Talos writes as an empty one": {
			func(text []byte) []byte {
				return edit(t, text, "        - 10.0.0.10\n        - a.example\n        - b.example\n        - c.example\n", "")
			},
			[]string{`v1alpha1 machine.certSANs: want ["10.0.0.10","a.example","b.example","c.example"], have []`},
		},
		"an element changed": {
			func(text []byte) []byte { return edit(t, text, "- a=1", "- a=2") },
			[]string{`v1alpha1 machine.kernel.modules[0].parameters[0]: want a=1, have a=2`},
		},
		"a field of another document": {
			func(text []byte) []byte { return edit(t, text, "minSize: 100GiB", "minSize: 50GiB") },
			[]string{`UserVolumeConfig/data provisioning.minSize: want 100GiB, have 50GiB`},
		},
		"a document left behind": {
			func(text []byte) []byte {
				return append(slices.Clone(text), "---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nntp:\n    servers:\n        - time.example\n"...)
			},
			[]string{`TimeSyncConfig : want , have {"apiVersion":"v1alpha1","kind":"TimeSyncConfig","ntp":{"servers":["time.example"]}}`},
		},
		"a secret": {
			func(text []byte) []byte {
				return edit(t, text, "token: "+in.Bundle.TrustdInfo.Token, "token: abcdef.0123456789abcdef")
			},
			[]string{`v1alpha1 machine.token: want ***, have ***`},
		},
		"a value from a Secret": {
			func(text []byte) []byte { return edit(t, text, "s3cr3t-proxy-password", "an-older-one") },
			[]string{`v1alpha1 machine.env.PASSWORD: want ***, have ***`},
		},
		"comments and order": {reorder, nil},
		"a document that this machinery doesn't know": {
			func(text []byte) []byte {
				return append(slices.Clone(text), "---\napiVersion: v1alpha1\nkind: SysctlConfig\nsysctls:\n    secret: hunter2\n"...)
			},
			[]string{`SysctlConfig : want , have ***`},
		},
		"a field that this machinery doesn't know": {
			func(text []byte) []byte {
				return edit(t, text, `net.core.somaxconn: "4096"`, "net.core.somaxconn: \"4096\"\n    fieldOfTheFuture:\n        secret: hunter2")
			},
			[]string{`v1alpha1 machine.fieldOfTheFuture: want , have ***`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			differences, err := Compare(want, c.change(want), masks)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, texts(differences)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

// reorder writes a configuration with its keys in another order, with comments, and its documents the other way round.
func reorder(text []byte) []byte {
	var documents [][]byte
	for reader := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var value any
		if reader.Decode(&value) != nil {
			break
		}
		written, err := yaml.Marshal(value) // sorts keys
		if err != nil {
			panic(err)
		}
		documents = append(documents, append([]byte("# a comment\n"), written...))
	}
	slices.Reverse(documents)
	return bytes.Join(documents, []byte("---\n"))
}

// Talos' own tools write the defaults and comments of its types into what they change.
func TestReencodingIsNoDifference(t *testing.T) {
	t.Parallel()
	in := driftInputs(t)
	want := mustRender(t, in)
	provider, err := configloader.NewFromBytes(want)
	if err != nil {
		t.Fatal(err)
	}
	have, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsAll))
	if err != nil {
		t.Fatal(err)
	}
	differences, err := Compare(want, have, nil)
	if err != nil || len(differences) > 0 {
		t.Errorf("got %q, %v", texts(differences), err)
	}
}

func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	in := driftInputs(t)
	want := mustRender(t, in)
	redacted, err := Redact(want, MasksOf(in.Patches))
	if err != nil {
		t.Fatal(err)
	}
	// Everything is different from a configuration of another cluster.
	differences, err := Compare(want, []byte("version: v1alpha1\nmachine: {type: worker}\n"), MasksOf(in.Patches))
	if err != nil || len(differences) == 0 {
		t.Fatalf("got %d differences, %v", len(differences), err)
	}
	shown := string(redacted) + strings.Join(texts(differences), "\n")
	for name, secret := range map[string]string{
		"the machine token":         in.Bundle.TrustdInfo.Token,
		"the bootstrap token":       in.Bundle.Secrets.BootstrapToken,
		"the cluster's secret":      in.Bundle.Cluster.Secret,
		"the secretbox key":         in.Bundle.Secrets.SecretboxEncryptionSecret,
		"a value of a Secret":       "s3cr3t-proxy-password",
		"the key of Talos' CA":      string(in.Bundle.Certs.OS.Key),
		"the key of Kubernetes' CA": string(in.Bundle.Certs.K8s.Key),
	} {
		if strings.Contains(shown, secret) {
			t.Errorf("%s is shown", name)
		}
	}
	if !strings.Contains(strings.ReplaceAll(string(redacted), `"`, "'"), "PASSWORD: '***'") {
		t.Errorf("the masked field is not there: %s", redacted)
	}
}

func TestMasksAreWrittenDownAndReadBack(t *testing.T) {
	t.Parallel()
	masks := Masks{}
	masks.add("v1alpha1", []string{"machine", "env", "A/B~C"})
	masks.add("RegistryAuthConfig/ghcr.io", []string{"password"})
	masks.add("v1alpha1", []string{"machine", "files", "0", "content"})
	if diff := cmp.Diff(masks, ParseMasks(masks.Texts())); diff != "" {
		t.Error(diff)
	}
	if !masks.hides("v1alpha1", Path{key("machine"), key("files"), element(3), key("content")}) {
		t.Error("another element of a list with a secret in it isn't hidden")
	}
}

func FuzzCompare(f *testing.F) {
	f.Add([]byte("version: v1alpha1\nmachine: {type: worker}\n"), []byte("version: v1alpha1\nmachine: {type: worker, x: y}\n---\nkind: A\n"))
	f.Fuzz(func(_ *testing.T, want, have []byte) { _, _ = Compare(want, have, nil) })
}
