// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/profile"
)

// Versions other than the recorded one, each with a Kubernetes that it runs. What a 1.12 answers in maintenance is recorded
// too; everything else is that of 1.13, but for what package profile lists with its sources.
const (
	older, olderKubernetes = "v1.12.11", "1.35.4"
	later, laterKubernetes = "v1.14.0", "1.37.0"
)

func of(t *testing.T, version string) *profile.Profile {
	t.Helper()
	p, err := profile.ForVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// containerd are the services that came with 1.13.
var containerd = []string{"machine.ImageService", "machine.LifecycleService", "machine.DebugService"}

// without are the differences of a version: those that were there already, and services that it lacks.
func without(p *profile.Profile, differences map[string]difference) map[string]difference {
	out := map[string]difference{}
	for method, d := range differences {
		out[method] = d
	}
	if p.Containerd {
		return out
	}
	for _, m := range methods() {
		for _, service := range containerd {
			if string(m.Parent().FullName()) == service {
				out[path(m)] = difference{reason: "the service came with 1.13", want: "Unimplemented: unknown service " + service}
			}
		}
	}
	return out
}

func TestEveryMethodOfAnOlderNodeInMaintenanceAnswersAsARealOne(t *testing.T) {
	t.Parallel()
	compare(t, connect(t, maintenanceOf(t, older), anonymous), 2, nil)
}

func TestEveryMethodOfALaterNodeInMaintenanceAnswersAsTheRecordedOne(t *testing.T) {
	t.Parallel()
	compare(t, connect(t, maintenanceOf(t, later), anonymous), 1, without(of(t, later), maintenanceDifferences))
}

func TestEveryMethodOfOtherConfiguredVersionsAnswersAsTheRecordedOne(t *testing.T) {
	t.Parallel()
	for talosVersion, kubernetesVersion := range map[string]string{older: olderKubernetes, later: laterKubernetes} {
		t.Run(talosVersion, func(t *testing.T) {
			t.Parallel()
			c, n := unsettledOf(t, talosVersion, kubernetesVersion)
			compare(t, connect(t, n, c.TLS(role.Admin)), 3, without(of(t, talosVersion), configuredDifferences))
		})
	}
}

func TestEveryTypeOfOtherVersionsIsDefinedAsTheContractSays(t *testing.T) {
	t.Parallel()
	for _, version := range []string{older, later} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			compareTypes(t, version)
		})
	}
}

// listsOf are the recorded lists' differences of a version: types that it lacks are refused.
func listsOf(p *profile.Profile, differences map[string]string) map[string]string {
	missing := map[string]string{"ResourceDefinitions.meta.cosi.dev": "Talos " + p.Minor + " has other types"}
	for _, kind := range p.MissingTypes {
		missing[kind] = fmt.Sprintf("Talos %s has no such type", p.Minor)
	}
	return merged(differences, missing)
}

func TestEveryListOfOtherVersionsIsThatOfTheRecordedOne(t *testing.T) {
	t.Parallel()
	for talosVersion, kubernetesVersion := range map[string]string{older: olderKubernetes, later: laterKubernetes} {
		t.Run(talosVersion+" in maintenance", func(t *testing.T) {
			t.Parallel()
			c := hollowtest.Insecure(t, maintenanceOf(t, talosVersion))
			compareLists(t, c, 3, listsOf(of(t, talosVersion), maintenanceLists))
			for _, kind := range of(t, talosVersion).MissingTypes {
				if got := listed(t.Context(), c, "runtime", kind); !strings.HasPrefix(got, "ERR PermissionDenied: resource type") {
					t.Errorf("%s: %s", kind, got)
				}
			}
		})
		t.Run(talosVersion+" configured", func(t *testing.T) {
			t.Parallel()
			c, n := unsettledOf(t, talosVersion, kubernetesVersion)
			admin := c.Connect(n, role.Admin)
			compareLists(t, admin, 4, listsOf(of(t, talosVersion), configuredLists))
			for _, extra := range of(t, talosVersion).ExtraTypes {
				want := "0 "
				if extra.ID != "" {
					want = "1 " + extra.ID
				}
				if got := listed(t.Context(), admin, extra.Namespace, extra.Type); got != want {
					t.Errorf("%s: %s, want %s", extra.Type, got, want)
				}
			}
		})
	}
}
