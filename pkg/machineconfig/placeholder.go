// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// placeholderBundle has secrets of nobody: what is rendered with it is only shown, with all of them replaced. Its keys take
// a second to make, once a process.
var placeholderBundle = sync.OnceValues(func() (*secrets.Bundle, error) {
	bundle, err := secrets.NewBundle(secrets.NewClock(), newestContract)
	if err != nil {
		return nil, fmt.Errorf("make placeholders for the cluster's secrets: %w", err)
	}
	return bundle, nil
})

// View is a configuration for people, every secret replaced.
type View struct {
	// Text is the configuration in YAML.
	Text []byte
	// Patches are in it, in the order in which they were merged.
	Patches []*Patch
	// Warnings are what is odd about it though it works.
	Warnings []string
	// Provenance says who set each field, if it was asked for.
	Provenance []Origin
}

// previewInputs are what a machine's configuration is made of, but for its patches, as far as the API knows it.
func previewInputs(bundle *secrets.Bundle, cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine) Inputs {
	versions := Settle(cluster, m.Status.SchematicID)
	if m.Status.SettledVersions != nil {
		versions = *m.Status.SettledVersions
	}
	return Inputs{
		Bundle: bundle, Cluster: cluster, Machine: m,
		Facts: Facts{MaintenanceVersion: m.Status.TalosVersion, Inventory: m.Status.Inventory, Versions: versions},
	}
}

// placeholderValue stands for the value of every Secret.
func placeholderValue(v1alpha1.SecretKeyReference) (string, error) { return SecretPlaceholder, nil }

// Preview renders what a machine is to have as the controller does, but without any secret: with placeholders for those of
// the cluster and of Secrets. Its errors are Render's.
func Preview(cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine, patches []*v1alpha1.TalosConfigPatch, provenance bool) (*View, error) {
	bundle, err := placeholderBundle()
	if err != nil {
		return nil, err
	}
	in := previewInputs(bundle, cluster, m)
	for _, patch := range PatchesFor(m, patches) {
		made, err := Compile(patch, cluster.Spec.CNI.Cilium != nil, placeholderValue)
		if err != nil {
			return nil, err
		}
		in.Patches = append(in.Patches, made)
	}
	rendering, text, unjudged, err := renderUnjudged(in)
	if err != nil {
		return nil, err
	}
	view := &View{Patches: in.Patches, Warnings: rendering.warnings}
	for _, name := range unjudged {
		view.Warnings = append(view.Warnings, unjudgedWarning(name))
	}
	if view.Text, err = Redact(text, MasksOf(in.Patches)); err != nil {
		return nil, err
	}
	if provenance {
		view.Provenance, err = Provenance(in)
	}
	return view, err
}

// unjudgedWarning says that a patch couldn't be judged.
func unjudgedWarning(patch string) string {
	return fmt.Sprintf("whether Talos takes patch %s depends on the values of its Secrets, which aren't read here", patch)
}
