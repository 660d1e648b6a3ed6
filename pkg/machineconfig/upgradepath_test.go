// SPDX-License-Identifier: Apache-2.0

package machineconfig_test

import (
	"strings"
	"testing"

	"maesh.dev/ichor/pkg/machineconfig"
)

// Source: Talos, pkg/machinery/compatibility; versions that the machinery doesn't know follow the same rule.
func TestWhichVersionMayBeInstalledOverWhich(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, why string }{
		{"v1.13.8", "v1.13.9", ""},
		{"v1.13.9", "v1.13.9", ""},
		{"v1.12.11", "v1.13.9", ""},
		{"v1.11.6", "v1.13.9", ""},
		{"v1.10.4", "v1.13.9", "upgrade to a version in between first"},
		{"v1.13.9", "v1.14.0", ""},
		{"v1.12.11", "v1.14.0", ""},
		{"v1.14.0-rc.1", "v1.14.0", ""},
		{"v1.11.6", "v1.14.0", "upgrade to a version in between first"},
		{"v1.13.9", "v1.16.0", "upgrade to a version in between first"},
		{"v1.13.9", "v2.0.0", "upgrade to a version in between first"},
		{"v1.13.9", "v1.13.8", "isn't taken back to an earlier version"},
		{"v1.14.0", "v1.13.9", "isn't taken back to an earlier version"},
		{"v1.14.0", "v1.14.0-rc.1", "isn't taken back to an earlier version"},
		{"v1.13.9", "newest", "no Talos version"},
		{"", "v1.13.9", "no Talos version"},
	} {
		err := machineconfig.CheckUpgradePath(c.from, c.to)
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("from %s to %s: %v, want %q", c.from, c.to, err, c.why)
		}
	}
}

func TestWhichKubernetesRunsOnWhichTalos(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kubernetes, talos string
		runs              bool
	}{
		{"v1.31.0", "v1.13.9", true},
		{"v1.36.6", "v1.13.9", true},
		{"v1.30.0", "v1.13.9", false},
		{"v1.37.0", "v1.13.9", false},
		{"v1.32.0", "v1.14.0", true},
		{"v1.37.2", "v1.14.0", true},
		{"v1.31.9", "v1.14.0", false},
		{"v1.38.0", "v1.14.0", false},
		{"newest", "v1.14.0", false},
	} {
		if err := machineconfig.CheckKubernetesOn(c.kubernetes, c.talos); (err == nil) != c.runs {
			t.Errorf("Kubernetes %s on Talos %s: %v", c.kubernetes, c.talos, err)
		}
	}
}
