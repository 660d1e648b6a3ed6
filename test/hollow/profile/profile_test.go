// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

func get(t *testing.T, version string) *Profile {
	t.Helper()
	p, err := ForVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEveryDifferenceHasASource(t *testing.T) {
	t.Parallel()
	fields := reflect.VisibleFields(reflect.TypeFor[Profile]())
	for _, field := range fields {
		if len(sources[field.Name]) == 0 {
			t.Errorf("%s: no source", field.Name)
		}
	}
	for name := range sources {
		if !slices.ContainsFunc(fields, func(f reflect.StructField) bool { return f.Name == name }) {
			t.Errorf("%s: a source of nothing", name)
		}
	}
}

// The lines are those of the contract, in the order of its sections.
func TestWhatTheContractSaysOfVersions(t *testing.T) {
	t.Parallel()
	const v12, v13, v14 = "v1.12.11", "v1.13.9", "v1.14.0-rc.1"
	for _, line := range []struct {
		says  string
		holds func(*Profile) bool
		in    []string
	}{
		{"§0.1 1.13 has no separate maintenance server any more", func(p *Profile) bool { return p.MaintenanceServer }, []string{v12}},
		{"§0.4 1.14 never reboots on apply", func(p *Profile) bool { return p.RebootsOnApply }, []string{v12, v13}},
		{"§0.5 LifecycleService is new in 1.13", func(p *Profile) bool { return p.Containerd }, []string{v13, v14}},
		{"§1.1 APIServiceConfig runs maintenance in apid", func(p *Profile) bool { return slices.Contains(p.MissingTypes, "APIServiceConfigs.runtime.talos.dev") }, []string{v12}},
		{"§2 1.14 adds BootID", func(p *Profile) bool { return p.has("BootIDs.runtime.talos.dev", "boot-id") }, []string{v14}},
		{"§2 1.14 adds ImageFactorySchematics", func(p *Profile) bool {
			return p.has("ImageFactorySchematics.runtime.talos.dev", "image-factory-schematic")
		}, []string{v14}},
		{"§4 1.14: install section no longer required", func(p *Profile) bool { return p.RunsFromMemory }, []string{v14}},
		{"§4 1.14: unknown mode ⇒ InvalidArgument", func(p *Profile) bool { return p.RefusesUnknownModes }, []string{v14}},
		{"§8 kinds in 1.13: KubeSpanConfig", func(p *Profile) bool { return slices.Contains(p.MissingKinds, "KubeSpanConfig") }, []string{v12}},
		{"§8 1.14 adds UnattendedInstallConfig", func(p *Profile) bool { return slices.Contains(p.LaterKinds, "UnattendedInstallConfig") }, []string{v14}},
		{"§9.17 stream errors are in the data before 1.14", func(p *Profile) bool { return p.StreamErrorsInData }, []string{v12, v13}},
	} {
		var in []string
		for _, version := range []string{v12, v13, v14} {
			if line.holds(get(t, version)) {
				in = append(in, version)
			}
		}
		if diff := cmp.Diff(line.in, in); diff != "" {
			t.Errorf("%s (-contract +profile):\n%s", line.says, diff)
		}
	}
}

func (p *Profile) has(kind, id string) bool {
	return slices.ContainsFunc(p.ExtraTypes, func(e ExtraType) bool { return e.Type == kind && e.ID == id })
}

func TestKindsThatAVersionRefusesAreKindsOfThirteen(t *testing.T) {
	t.Parallel()
	for _, p := range profiles {
		for _, kind := range slices.Concat(p.MissingKinds, slices.Collect(maps.Keys(p.MissingKeys))) {
			if !readable(kind) {
				t.Errorf("%s: %s is no kind of 1.13", p.Minor, kind)
			}
		}
		for _, kind := range p.LaterKinds {
			if readable(kind) {
				t.Errorf("%s: %s is a kind of 1.13 already", p.Minor, kind)
			}
		}
	}
}

// readable tells whether the machinery in use knows a kind of documents.
func readable(kind string) bool {
	_, err := configloader.NewFromBytes([]byte("apiVersion: v1alpha1\nkind: " + kind + "\n"))
	return err == nil || !strings.Contains(err.Error(), "not registered")
}

func versionInfo(tag string) *machine.VersionInfo { return &machine.VersionInfo{Tag: tag} }

// The machinery of 1.13 has the tables of 1.12 and of itself; those of 1.14 are in the contract alone (§7).
func TestWhichHostsAndWhichKubernetesAVersionTakes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.12.11", "v1.13.9"} {
		p := get(t, version)
		talos, err := compatibility.ParseTalosVersion(versionInfo(version))
		if err != nil {
			t.Fatal(err)
		}
		for minor := 9; minor <= 16; minor++ {
			host, err := compatibility.ParseTalosVersion(versionInfo(fmt.Sprintf("v1.%d.1", minor)))
			if err != nil {
				t.Fatal(err)
			}
			if want, got := talos.UpgradeableFrom(host) == nil, p.UpgradeableFrom(fmt.Sprintf("v1.%d.1", minor)) == nil; got != want {
				t.Errorf("%s over 1.%d: %t, want %t", version, minor, got, want)
			}
		}
		for minor := 28; minor <= 39; minor++ {
			kubernetes, err := compatibility.ParseKubernetesVersion(fmt.Sprintf("1.%d.2", minor))
			if err != nil {
				t.Fatal(err)
			}
			want, got := words(kubernetes.SupportedWith(talos)), words(p.RunsKubernetes(fmt.Sprintf("ghcr.io/siderolabs/kubelet:v1.%d.2", minor), version))
			if got != want {
				t.Errorf("%s with Kubernetes 1.%d: %q, want %q", version, minor, got, want)
			}
		}
	}
	later := get(t, "v1.14.0")
	for host, want := range map[string]bool{"v1.11.6": false, "v1.12.0": true, "v1.15.0": true, "v1.16.0": false} {
		if got := later.UpgradeableFrom(host) == nil; got != want {
			t.Errorf("1.14 over %s: %t", host, got)
		}
	}
	for image, want := range map[string]bool{"k:v1.31.9": false, "k:v1.32.0": true, "k:v1.37.0-rc.1@sha256:00": true, "k:v1.38.0": false, "k:latest": false, "k": false} {
		if got := later.RunsKubernetes(image, "v1.14.0") == nil; got != want {
			t.Errorf("1.14 with %s: %t", image, got)
		}
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(err.Error())
}

func TestAVersionWithoutAProfileIsAnError(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.11.0": "no profile for 1.11; known are 1.12, 1.13, 1.14",
		"1.13.9":  "is no Talos version",
		"v2.0.0":  "is no Talos version",
	} {
		if _, err := ForVersion(version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
}
