// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// SecretValues look a value up that a patch takes from a Secret. An error says which Secret or key is missing, without any
// value.
type SecretValues func(v1alpha1.SecretKeyReference) (string, error)

// ValueError is a value that can't be had until a person mends it.
type ValueError struct {
	// Reason says which Secret or key, and what to do.
	Reason string
}

func (e *ValueError) Error() string { return e.Reason }

// Patch is a patch made ready to be merged, as often as wanted. It holds the values of its secrets.
type Patch struct {
	// Name and Generation say which patch it was made of.
	Name       string
	Generation int64
	// controlPlane and worker are what machines of each role get of it.
	controlPlane, worker []config.Document
	// secretPaths are the fields that come from Secrets, by document.
	secretPaths map[string][][]string
	// secrets are the values of these fields.
	secrets []string
	// newToControlPlane and newToWorker are what in it some version of Talos doesn't know, of what machines of each role get.
	newToControlPlane, newToWorker []unknown
}

// check finds what of the patch a machine doesn't know, whose Talos is one of these versions.
func (p *Patch) check(controlPlane bool, versions ...string) error {
	news := p.newToWorker
	if controlPlane {
		news = p.newToControlPlane
	}
	for _, news := range news {
		if old := slices.IndexFunc(versions, news.to); old >= 0 {
			return &PatchError{Patch: p.Name, Path: news.fault.Field,
				Reason: fmt.Sprintf("%s, and the machine has %s: upgrade it, or leave it out of the patch's target", news.fault.Detail, versions[old])}
		}
	}
	return nil
}

// PatchError says why a machine can't have a patch. It holds no value.
type PatchError struct {
	// Patch is the name of the TalosConfigPatch.
	Patch string
	// Path is the field of the patch, as in spec.machine.sysctls; empty if it is no single one.
	Path string
	// Reason says what is wrong.
	Reason string
}

func (e *PatchError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("patch %s: %s", e.Patch, e.Reason)
	}
	return fmt.Sprintf("patch %s: %s: %s", e.Patch, e.Path, e.Reason)
}

// Compile makes a patch ready, for a cluster with Cilium or without. Its errors are *PatchError. What the API refuses is
// refused here too: the patch may have been written before a rule was.
func Compile(patch *v1alpha1.TalosConfigPatch, cilium bool, secrets SecretValues) (*Patch, error) {
	parts := PartsOf(patch)
	if faults := CheckOwned(parts, cilium, field.NewPath("spec")); len(faults) > 0 {
		return nil, &PatchError{Patch: patch.Name, Path: faults[0].Field, Reason: faults[0].Detail}
	}
	compiled := &Patch{Name: patch.Name, Generation: patch.Generation, secretPaths: map[string][][]string{}}
	for _, value := range patch.Spec.SecretValues {
		path := fmt.Sprintf("spec.secretValues[path=%s]", value.Path)
		leads, err := parsePointer(value.Path)
		if err != nil {
			return nil, &PatchError{Patch: patch.Name, Path: path, Reason: err.Error()}
		}
		text, err := secrets(value.SecretKeyRef)
		if err != nil {
			return nil, &PatchError{Patch: patch.Name, Path: path, Reason: err.Error()}
		}
		if parts, err = parts.fill(leads, text); err != nil {
			return nil, &PatchError{Patch: patch.Name, Path: path, Reason: err.Error()}
		}
		compiled.secrets = append(compiled.secrets, text)
		compiled.secretPaths[leads.document()] = append(compiled.secretPaths[leads.document()], leads.keys())
	}
	worker, path := parts.withoutControlPlaneFields(), field.NewPath("spec")
	compiled.newToControlPlane, compiled.newToWorker = unknownTo(parts, path), unknownTo(worker, path)
	var err error
	if compiled.controlPlane, err = parts.documents(); err != nil {
		return nil, &PatchError{Patch: patch.Name, Reason: err.Error()}
	}
	if compiled.worker, err = worker.documents(); err != nil {
		return nil, &PatchError{Patch: patch.Name, Reason: err.Error()}
	}
	return compiled, nil
}

// PartsOf are the parts of a patch that are Talos' own.
func PartsOf(patch *v1alpha1.TalosConfigPatch) PatchParts {
	var parts PatchParts
	for _, value := range patch.Spec.SecretValues {
		parts.SecretPaths = append(parts.SecretPaths, value.Path)
	}
	if patch.Spec.Machine != nil {
		parts.Machine = patch.Spec.Machine.Raw
	}
	if patch.Spec.Cluster != nil {
		parts.Cluster = patch.Spec.Cluster.Raw
	}
	for _, document := range patch.Spec.Documents {
		parts.Documents = append(parts.Documents, document.Raw)
	}
	return parts
}

// fill puts a text where the pointer leads.
func (p PatchParts) fill(to pointer, text string) (PatchParts, error) {
	filled := PatchParts{Machine: p.Machine, Cluster: p.Cluster, Documents: slices.Clone(p.Documents), SecretPaths: p.SecretPaths}
	var err error
	switch to.section {
	case "machine":
		filled.Machine, err = fill(p.Machine, to.steps, text)
		return filled, err
	case "cluster":
		filled.Cluster, err = fill(p.Cluster, to.steps, text)
		return filled, err
	}
	for i, raw := range p.Documents {
		var head struct{ Kind, Name string }
		if json.Unmarshal(raw, &head) == nil && head.Kind == to.kind && head.Name == to.name {
			filled.Documents[i], err = fill(raw, to.steps, text)
			return filled, err
		}
	}
	return filled, fmt.Errorf("the patch has no document %s", to.document())
}

// documents decodes the parts as Talos' loader does; the documents of a part that says $patch: delete are selectors.
func (p PatchParts) documents() ([]config.Document, error) {
	var texts [][]byte
	main := map[string]json.RawMessage{"version": json.RawMessage(`"v1alpha1"`)}
	for name, raw := range map[string][]byte{"machine": p.Machine, "cluster": p.Cluster} {
		if len(raw) > 0 {
			main[name] = raw
		}
	}
	if len(main) > 1 {
		text, err := json.Marshal(main)
		if err != nil {
			return nil, errors.New("spec.machine or spec.cluster is no object")
		}
		texts = append(texts, text)
	}
	var documents []config.Document
	for _, text := range append(texts, p.Documents...) {
		loaded, err := load(text)
		if err != nil {
			return nil, errors.New("Talos doesn't take it: " + withoutValues(err)) //nolint:staticcheck // a name
		}
		documents = append(documents, loaded.Documents()...)
	}
	return documents, nil
}
