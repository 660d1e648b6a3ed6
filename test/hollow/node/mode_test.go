// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/profile"
)

// workerConfig is some worker's configuration.
func workerConfig(t *testing.T) config.Provider {
	t.Helper()
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_6)
	if err != nil {
		t.Fatal(err)
	}
	input, err := generate.NewInput("c", "https://127.0.0.1:6443", constants.DefaultKubernetesVersion, generate.WithSecretsBundle(bundle))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := input.Config(machine.TypeWorker)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// patched is the configuration with a change to its v1alpha1 document.
func patched(t *testing.T, cfg config.Provider, change func(*v1alpha1.Config)) config.Provider {
	t.Helper()
	next, err := cfg.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		change(c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// version is the profile of a version.
func version(t *testing.T, of string) *profile.Profile {
	t.Helper()
	p, err := profile.ForVersion(of)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheModeOfAnApplyByVersion(t *testing.T) {
	t.Parallel()
	active := workerConfig(t)
	light := patched(t, active, func(c *v1alpha1.Config) { c.MachineConfig.MachineNodeLabels = map[string]string{"a": "b"} })
	heavy := patched(t, active, func(c *v1alpha1.Config) { c.MachineConfig.MachineToken = "another.token000000000" })
	older, old, later := version(t, "v1.12.11"), version(t, "v1.13.9"), version(t, "v1.14.0")
	for _, c := range []struct {
		name        string
		profile     *profile.Profile
		next        config.Provider
		mode, want  applyMode
		maintenance bool
		code        codes.Code
	}{
		{"1.12, a heavy change", older, heavy, applyAuto, applyReboot, false, codes.OK},
		{"1.13, a light change", old, light, applyAuto, applyNoReboot, false, codes.OK},
		{"1.13, a heavy change", old, heavy, applyAuto, applyReboot, false, codes.OK},
		{"1.13, a heavy change without a reboot", old, heavy, applyNoReboot, 0, false, codes.InvalidArgument},
		{"1.13, a heavy change to try", old, heavy, applyTry, 0, false, codes.InvalidArgument},
		{"1.13, a heavy change in maintenance", old, heavy, applyAuto, applyNoReboot, true, codes.OK},
		{"1.13, the mode that is zero in maintenance", old, heavy, applyReboot, applyNoReboot, true, codes.OK},
		{"1.13, a mode that isn't one", old, light, 99, 0, false, codes.Unknown},
		{"1.14, a heavy change", later, heavy, applyAuto, applyNoReboot, false, codes.OK},
		{"1.14, with a reboot", later, light, applyReboot, 0, false, codes.Unimplemented},
		{"1.14, a mode that isn't one", later, light, 99, 0, false, codes.InvalidArgument},
		{"1.14, the mode that is zero in maintenance", later, light, applyReboot, applyNoReboot, true, codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := &boot{profile: c.profile, active: active}
			mode, _, err := b.chooseMode(c.mode, c.next, c.maintenance)
			if status.Code(err) != c.code || mode != c.want {
				t.Errorf("got %s, %v; want %s, %s", mode, err, c.want, c.code)
			}
		})
	}
}

func TestWhatAnInstallerImageInstalls(t *testing.T) {
	t.Parallel()
	const schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
	for image, want := range map[string]string{
		"ghcr.io/siderolabs/installer:v1.13.9":                                    "v1.13.9/",
		"factory.talos.dev/metal-installer/" + schematic + ":v1.13.8":             "v1.13.8/" + schematic,
		"factory.talos.dev/metal-installer/" + schematic + ":v1.13.8@sha256:abcd": "v1.13.8/" + schematic,
		"registry:5000/installer":                                                 "",
		"ghcr.io/siderolabs/installer:v9":                                         "",
	} {
		slot, err := slotOf(image)
		if got := slot.Version + "/" + slot.Schematic; err == nil && got != want || err != nil && want != "" {
			t.Errorf("%s: %q, %v; want %q", image, got, err, want)
		}
	}
}
