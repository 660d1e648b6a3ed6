// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func drift(state string, items ...v1alpha1.ConfigDrift) *v1alpha1.TalosMachineDrift {
	return &v1alpha1.TalosMachineDrift{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosMachineDrift"},
		ObjectMeta: metav1.ObjectMeta{Name: apitest.ControlPlane},
		State:      state, Message: "as it is", Count: int32(len(items)), Items: items,
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	config := &v1alpha1.TalosMachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TalosMachineConfig"},
		Text:     "version: v1alpha1\n", Warnings: []string{"patch a deletes nothing"},
	}
	full := config.DeepCopy()
	full.Provenance = []v1alpha1.FieldProvenance{
		{Document: "v1alpha1", Path: "machine.type", SetBy: "base"},
		{Document: "v1alpha1", Path: "machine.sysctls.a", SetBy: "patch", Patch: "tuning", Overrode: []string{"other"}},
	}
	path := "talosmachines/" + apitest.ControlPlane + "/config"
	server.Views = map[string]any{path + "?provenance=false": config, path + "?provenance=true": full}
	if result := server.Run(t, "machine", "config", "cp-1"); result.Code != 0 || result.Out != "version: v1alpha1\n" || !strings.Contains(result.Err, "warning: patch a deletes nothing") {
		t.Errorf("as text: %+v", result)
	}
	want := "DOCUMENT  FIELD              SET BY        INSTEAD OF\nv1alpha1  machine.type       base\nv1alpha1  machine.sysctls.a  patch tuning  other\n"
	if result := server.Run(t, "machine", "config", "cp-1", "--provenance"); result.Out != want {
		t.Errorf("with provenance:\n%s", result.Out)
	}
	result, got := server.Run(t, "machine", "config", "cp-1", "-o", "json"), &v1alpha1.TalosMachineConfig{}
	if err := json.Unmarshal([]byte(result.Out), got); err != nil || got.Kind != "TalosMachineConfig" || got.Text != config.Text {
		t.Errorf("as an object: %v, %s", err, result.Out)
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	changed := v1alpha1.ConfigDrift{Document: "v1alpha1", Path: "machine.sysctls.a", Want: "1", Have: "2"}
	for _, test := range []struct {
		name string
		args []string
		is   *v1alpha1.TalosMachineDrift
		code int
		out  string
	}{
		{"none", nil, drift("InSync"), 0, "cp-1  InSync  as it is\n"},
		{"some, of a machine that is named", []string{"cp-1"}, drift("Drifted", changed), 1, "cp-1  Drifted  as it is\n  machine.sysctls.a\n    - 1\n    + 2\n"},
		{"some, of all machines", nil, drift("PendingReboot", changed), 1, "cp-1  PendingReboot"},
		{"of a machine that was not compared", nil, drift("Unknown"), 2, "cp-1  Unknown"},
		{"of a machine that isn't there", []string{"nobody"}, drift("InSync"), 2, ""},
		{"as an object", []string{"cp-1", "-o", "jsonpath={.kind} {.items[0].have}"}, drift("Drifted", changed), 1, "TalosMachineDrift 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			server.Views = map[string]any{"talosmachines/" + apitest.ControlPlane + "/drift": test.is}
			result := server.Run(t, append([]string{"machine", "drift"}, test.args...)...)
			if result.Code != test.code || !strings.HasPrefix(result.Out, test.out) {
				t.Errorf("got %+v, want exit status %d and %q", result, test.code, test.out)
			}
		})
	}
}
