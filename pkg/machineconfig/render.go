// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Facts is what rendering must know of the machine itself.
type Facts struct {
	// MaintenanceVersion is the Talos version that will read the configuration first; empty if it doesn't matter any more.
	MaintenanceVersion string
	// Inventory is what the machine has now. Every disk and interface that was decided on is looked up in it.
	Inventory *v1alpha1.MachineInventory
	// Versions are what the machine is to have.
	Versions v1alpha1.SettledVersions
}

// Settle decides, from the cluster's intent, the versions that a machine is installed with: its own schematic if it
// reports one, else the cluster's, else the plain one.
func Settle(cluster *v1alpha1.TalosCluster, reportedSchematicID string) v1alpha1.SettledVersions {
	schematic := reportedSchematicID
	if schematic == "" {
		schematic = cluster.Spec.Install.SchematicID
	}
	if schematic == "" {
		schematic = PlainSchematicID
	}
	return v1alpha1.SettledVersions{
		Talos:       cluster.Spec.TalosVersion,
		Kubernetes:  cluster.Spec.KubernetesVersion,
		SchematicID: schematic,
	}
}

// Inputs are everything that a machine's configuration is made of.
type Inputs struct {
	// Bundle holds the cluster's secrets.
	Bundle *secrets.Bundle
	// Cluster and Machine are what people decided.
	Cluster *v1alpha1.TalosCluster
	Machine *v1alpha1.TalosMachine
	// Facts are what the machine says of itself.
	Facts Facts
	// Patches are those that the machine is to have, in the order of PatchesFor.
	Patches []*Patch
}

// Render gives the configuration of an approved machine: what Talos' generator makes for its role, then the patches in
// their order, then what was decided at approval, which has the last word. Equal inputs give equal bytes. The result
// holds the cluster's secrets; Redact it before it is shown. Errors name the field of the machine, the cluster or the
// patch (*PatchError) that can't be rendered, and hold no secret.
func Render(in Inputs) ([]byte, error) {
	rendering, err := render(in, nil)
	if err != nil {
		return nil, err
	}
	text, err := rendering.encode()
	if err != nil {
		return nil, err
	}
	return text, check(in, text)
}

// renderUnjudged is Render where placeholders stand for the values of Secrets: what Talos finds wrong with them says
// nothing. The patches that it can't judge are returned, and what is odd about the rest though it works.
func renderUnjudged(in Inputs) (made *rendering, text []byte, unjudged []string, err error) {
	if made, err = render(in, nil); err != nil {
		return nil, nil, nil, err
	}
	if text, err = made.encode(); err != nil {
		return nil, nil, nil, err
	}
	judged := text
	for range in.Patches {
		var fault *PatchError
		if err = check(in, judged); err == nil || !errors.As(err, &fault) {
			break
		}
		guilty := slices.IndexFunc(in.Patches, func(patch *Patch) bool { return patch.Name == fault.Patch })
		if guilty < 0 || len(in.Patches[guilty].secretPaths) == 0 {
			break
		}
		unjudged = append(unjudged, fault.Patch)
		in.Patches = slices.Delete(slices.Clone(in.Patches), guilty, guilty+1)
		// Without it, others may have nothing to change.
		rest, fails := render(in, nil)
		if fails != nil {
			return made, text, unjudged, nil
		}
		if judged, err = rest.encode(); err != nil {
			return nil, nil, nil, err
		}
	}
	return made, text, unjudged, err
}

// Warnings are what is odd about a rendering that works, for instance a patch that deletes a document that isn't there.
func Warnings(in Inputs) []string {
	rendering, err := render(in, nil)
	if err != nil {
		return nil
	}
	return rendering.warnings
}

// rendering is a configuration on its way.
type rendering struct {
	provider coreconfig.Provider
	warnings []string
}

func (r *rendering) encode() ([]byte, error) {
	text, err := r.provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errors.New("write the machine configuration: encoding failed")
	}
	return text, nil
}

// source says who set something: the base, a patch, or approval.
type source struct {
	kind  ProvenanceKind
	patch string
}

// render runs the stages. After each, if observe is given, it is told what there is.
func render(in Inputs, observe func(source, coreconfig.Provider) error) (*rendering, error) {
	system, err := resolveDisks(in.Machine.Spec.Disks, in.Facts.Inventory)
	if err != nil {
		return nil, err
	}
	decided, err := decidedDocuments(in.Machine, in.Facts.Inventory)
	if err != nil {
		return nil, err
	}
	provider, err := base(in.Bundle, in.Cluster, in.Machine, in.Facts)
	if err != nil {
		return nil, err
	}
	stage := func(by source, documents []config.Document) error {
		if provider, err = assemble(documents); err != nil {
			return err
		}
		if observe == nil {
			return nil
		}
		return observe(by, provider)
	}
	if err := stage(source{kind: ProvenanceBase}, provider.Documents()); err != nil {
		return nil, err
	}
	r := &rendering{}
	controlPlane := in.Machine.Spec.Role == v1alpha1.RoleControlPlane
	for _, patch := range in.Patches {
		if err := patch.check(controlPlane, in.Facts.MaintenanceVersion, in.Facts.Versions.Talos); err != nil {
			return nil, err
		}
		documents, warnings, err := patch.apply(provider.Documents(), controlPlane)
		if err != nil {
			return nil, err
		}
		r.warnings = append(r.warnings, warnings...)
		if err := stage(source{kind: ProvenancePatch, patch: patch.Name}, documents); err != nil {
			return nil, &PatchError{Patch: patch.Name, Path: "spec.documents", Reason: err.Error()}
		}
	}
	documents, err := decide(provider, in.Machine, system, decided)
	if err != nil {
		return nil, err
	}
	if err := stage(source{kind: ProvenanceApproval}, documents); err != nil {
		return nil, err
	}
	r.provider = provider
	return r, nil
}

// Hash is the hexadecimal SHA-256 of a configuration's bytes.
func Hash(configuration []byte) string {
	sum := sha256.Sum256(configuration)
	return hex.EncodeToString(sum[:])
}

// Role reads the role that a configuration gives a machine.
func Role(configuration []byte) (v1alpha1.MachineRole, error) {
	provider, err := configloader.NewFromBytes(configuration)
	if err != nil || provider.Machine() == nil {
		// The loader's own words may quote the text.
		return "", errors.New("read the role of a machine configuration: it can't be read as one")
	}
	switch kind := provider.Machine().Type(); kind {
	case machine.TypeInit, machine.TypeControlPlane:
		return v1alpha1.RoleControlPlane, nil
	case machine.TypeWorker:
		return v1alpha1.RoleWorker, nil
	default:
		return "", fmt.Errorf("read the role of a machine configuration: %s is neither controlplane nor worker", kind)
	}
}
