// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"strings"
	"testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/test/documents"
)

// versions that the hollow machines run: one that says which change needs a reboot, and one that never does.
var versions = []string{"v1.13.9", "v1.14.0"}

// Machines of both roles are installed with every kind of document at once, and show no drift.
func TestMachinesAreInstalledWithEveryKindOfDocument(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			patches := together(t)
			for role, h := range rack(t, version, patches...) {
				want, masks := h.with(t, patches...)
				for _, difference := range h.drift(t, want, masks) {
					t.Errorf("%s: %+v", role, difference)
				}
				for _, patch := range patches {
					if section := patch.Spec.Machine != nil || patch.Spec.Cluster != nil; !section && !strings.Contains(string(want), "kind: "+kindOf(patch)) {
						t.Errorf("%s has no document of %s", role, patch.Name)
					}
				}
			}
		})
	}
}

// Each kind comes and goes by itself on a running machine: where no reboot is needed for it, the machine takes it, shows no
// drift with it, and none without it.
func TestEveryKindOfDocumentComesAndGoes(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			for role, h := range rack(t, version) {
				base, _ := h.with(t)
				for _, patch := range together(t) {
					h.comesAndGoes(t, string(role), base, patch)
				}
			}
		})
	}
}

// together are the examples that may be on one machine at once: all but the one that no patch may have.
func together(t *testing.T) []*v1alpha1.TalosConfigPatch {
	t.Helper()
	var patches []*v1alpha1.TalosConfigPatch
	for _, example := range all(t) {
		if example.Kind != documents.Approved {
			patches = append(patches, patchOf(t, example))
		}
	}
	return patches
}

func kindOf(patch *v1alpha1.TalosConfigPatch) string {
	_, after, _ := strings.Cut(string(patch.Spec.Documents[0].Raw), `"kind":"`)
	kind, _, _ := strings.Cut(after, `"`)
	return kind
}

// comesAndGoes gives a running machine one patch and takes it away again.
func (h *hollow) comesAndGoes(t *testing.T, role string, base []byte, patch *v1alpha1.TalosConfigPatch) {
	t.Helper()
	want, masks := h.with(t, patch)
	differences, err := machineconfig.Compare(want, base, masks)
	if err != nil {
		t.Fatal(err)
	}
	late := machineconfig.NeedsReboot(differences, h.version)
	err = h.apply(t, want)
	switch {
	case len(late) > 0 && strings.HasPrefix(h.version, "v1.13"):
		// The machine itself says that it needs a reboot.
		if err == nil || !strings.Contains(err.Error(), "immediate mode") {
			t.Errorf("%s, %s: %d fields are said to need a reboot, and the machine says %v", role, patch.Name, len(late), err)
		}
		return
	case err != nil:
		t.Errorf("%s doesn't take %s: %v", role, patch.Name, err)
		return
	}
	for _, difference := range h.drift(t, want, masks) {
		t.Errorf("%s with %s: %+v", role, patch.Name, difference)
	}
	if err := h.apply(t, base); err != nil {
		t.Errorf("%s without %s: %v", role, patch.Name, err)
	}
	for _, difference := range h.drift(t, base, masks) {
		t.Errorf("%s without %s: %+v", role, patch.Name, difference)
	}
}
