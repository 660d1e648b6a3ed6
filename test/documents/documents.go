// SPDX-License-Identifier: Apache-2.0

// Package documents holds an example of every kind of document that Talos' configuration has, and of its two sections, each
// as a person would write it: a manifest of a TalosConfigPatch. The tests that show what Ichor does with each kind share
// them. The package knows nothing of how a patch is judged or rendered.
package documents

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"embed"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/pkg/apis/ichor/talosschema"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

//go:embed testdata/*.yaml
var files embed.FS

// The examples of the sections of Talos' v1alpha1 configuration; all others are named by their kind.
const (
	Machine = "machine"
	Cluster = "cluster"
)

// Approved is the one kind that no patch may have: the hostname is decided when a machine is approved.
const Approved = "HostnameConfig"

// Example is a patch with one kind of document, or one section.
type Example struct {
	// Kind of the document, or Machine or Cluster.
	Kind string
	// Text is the manifest.
	Text []byte
}

// All are the examples, sorted by kind.
func All() ([]Example, error) {
	names, err := fs.Glob(files, "testdata/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the examples: %w", err)
	}
	var examples []Example
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the example %s: %w", name, err)
		}
		examples = append(examples, Example{Kind: strings.TrimSuffix(path.Base(name), ".yaml"), Text: text})
	}
	return examples, nil
}

// Patch is the example as an object.
func (e Example) Patch() (*v1alpha1.TalosConfigPatch, error) {
	patch := &v1alpha1.TalosConfigPatch{}
	if err := yaml.UnmarshalStrict(e.Text, patch); err != nil {
		return nil, fmt.Errorf("read the example of %s: %w", e.Kind, err)
	}
	return patch, nil
}

// Secrets are the values that the examples take from the Secret "examples", by key: each is such as the field wants, and
// like no other text.
func Secrets() map[string]string {
	return map[string]string{
		"siderolink-url":       "https://siderolink.example.org/?jointoken=kept-secret-jointoken",
		"siderolink-token":     "kept-secret-siderolink-token",
		"wireguard-key":        "a2VwdC1zZWNyZXQtd2lyZWd1YXJkLXByaXZhdGUtLS0=",
		"wireguard-shared-key": "a2VwdC1zZWNyZXQtd2lyZWd1YXJkLXNoYXJlZC0tLS0=",
		"hcloud-token":         "kept-secret-hcloud-token",
		"raw-passphrase":       "kept-secret-raw-passphrase",
		"ephemeral-passphrase": "kept-secret-ephemeral-passphrase",
		"swap-passphrase":      "kept-secret-swap-passphrase",
		"volume-passphrase":    "kept-secret-volume-passphrase",
		"registry-client-key":  clientKey(),
		"registry-password":    "kept-secret-registry-password",
		"file-token":           "kept-secret-file-token",
	}
}

// clientKey is a private key that is nobody's, another one in each process.
var clientKey = sync.OnceValue(func() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // the computer has no randomness
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err) // the curve is known
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
})

// Misspelt is one way to get the name of a field of an example wrong.
type Misspelt struct {
	// Path of the wrong name in the patch, as in spec.documents[0].provisioning.minSizeX.
	Path string
	// Patch with the wrong name.
	Patch *v1alpha1.TalosConfigPatch
}

// Misspellings are all ways to get one of an example's names wrong that Talos' schema knows, and the paths of its secrets:
// the keys of free maps, such as sysctls, are nobody's names.
func (e Example) Misspellings() ([]Misspelt, error) {
	patch, err := e.Patch()
	if err != nil {
		return nil, err
	}
	var all []Misspelt
	for _, part := range partsOf(patch) {
		var value map[string]any
		if err := json.Unmarshal(*part.raw(patch), &value); err != nil {
			return nil, fmt.Errorf("read the example of %s: %w", e.Kind, err)
		}
		walk(value, part.schema, part.path, func(at string) {
			wrong := patch.DeepCopy()
			if raw, err := json.Marshal(value); err == nil { // what was read can be written
				*part.raw(wrong) = raw
			}
			all = append(all, Misspelt{Path: at, Patch: wrong})
		})
	}
	for i := range patch.Spec.SecretValues {
		wrong := patch.DeepCopy()
		wrong.Spec.SecretValues[i].Path += "X"
		all = append(all, Misspelt{Path: fmt.Sprintf("spec.secretValues[%d].path", i), Patch: wrong})
	}
	return all, nil
}

// part is one of the parts of a patch that are Talos' own.
type part struct {
	path   string
	schema schema
	raw    func(*v1alpha1.TalosConfigPatch) *[]byte
}

func partsOf(patch *v1alpha1.TalosConfigPatch) []part {
	var parts []part
	if patch.Spec.Machine != nil {
		parts = append(parts, part{"spec.machine", talosschema.Definition(talosschema.Machine), func(p *v1alpha1.TalosConfigPatch) *[]byte { return &p.Spec.Machine.Raw }})
	}
	if patch.Spec.Cluster != nil {
		parts = append(parts, part{"spec.cluster", talosschema.Definition(talosschema.Cluster), func(p *v1alpha1.TalosConfigPatch) *[]byte { return &p.Spec.Cluster.Raw }})
	}
	for i := range patch.Spec.Documents {
		var head struct{ Kind string }
		if json.Unmarshal(patch.Spec.Documents[i].Raw, &head) != nil {
			continue // the test of the examples finds that there is no schema
		}
		parts = append(parts, part{
			fmt.Sprintf("spec.documents[%d]", i), talosschema.Document(head.Kind),
			func(p *v1alpha1.TalosConfigPatch) *[]byte { return &p.Spec.Documents[i].Raw },
		})
	}
	return parts
}
