// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// Each version with a Kubernetes that it runs.
var kubernetesOf = map[string]string{"v1.12.11": "1.35.4", "v1.13.9": "1.36.0", "v1.14.0": "1.37.0"}

// booted is a machine in maintenance, from media of a version.
func booted(t *testing.T, version string) (*hollowtest.Rack, *node.Node) {
	t.Helper()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	m := rack.Machine()
	m.TalosVersion = version
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	return rack, n
}

// The installed image decides which version the machine is from its next boot on, whichever version it booted first.
func TestAMachineRunsTheVersionThatWasInstalled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ media, installed, kubernetes string }{
		{"v1.12.11", "v1.12.11", "1.35.4"},
		{"v1.13.9", "v1.13.9", "1.36.0"},
		{"v1.14.0", "v1.14.0", "1.37.0"},
		{"v1.12.11", "v1.13.9", "1.35.4"},
		{"v1.12.11", "v1.14.0", "1.35.4"},
		{"v1.14.0", "v1.13.9", "1.36.0"},
		{"v1.13.9", "v1.12.11", "1.35.4"},
	} {
		t.Run(c.media+" installs "+c.installed, func(t *testing.T) {
			t.Parallel()
			_, n := booted(t, c.media)
			if got := n.Status().Version; got != c.media {
				t.Fatalf("the media runs %s", got)
			}
			cluster := hollowtest.NewClusterOf(t, n.Address(), "/dev/nvme0n1", c.installed, c.kubernetes)
			_, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{
				Data: cluster.Config(machinetype.TypeControlPlane), Mode: modeAuto,
			})
			if err != nil {
				t.Fatal(err)
			}
			hollowtest.Wait(t, n, func(s node.Status) bool {
				return s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
			})
			admin := cluster.Connect(n, role.Admin)
			if err := admin.Bootstrap(patient(t), &machine.BootstrapRequest{}); err != nil {
				t.Fatal(err)
			}
			hollowtest.Wait(t, n, node.Running)
			reply, err := admin.Version(patient(t))
			if err != nil {
				t.Fatal(err)
			}
			resource, err := safe.StateGetByID[*runtime.Version](patient(t), admin.COSI, "version")
			if err != nil {
				t.Fatal(err)
			}
			if got := reply.GetMessages()[0].GetVersion().GetTag(); got != c.installed || resource.TypedSpec().Version != c.installed {
				t.Errorf("the disk runs %s, its resource says %s; want %s", got, resource.TypedSpec().Version, c.installed)
			}
			// talos-contract.md §9.17: in 1.14 stream errors come as gRPC status.
			stream, err := admin.MachineClient.Copy(patient(t), &machine.CopyRequest{RootPath: "/not/there"})
			if err != nil {
				t.Fatal(err)
			}
			chunk, err := stream.Recv()
			if inData := err == nil && chunk.GetMetadata().GetError() != ""; inData != (c.installed != "v1.14.0") || err != nil && !strings.Contains(err.Error(), "no such file") {
				t.Errorf("a copy of nothing: %v, %v", chunk, err)
			}
		})
	}
}

// A refused configuration does nothing, and the words are those of the version (talos-contract.md §1.6, §4, §8; real
// clusters have told of the texts of 1.12).
func TestWhatAVersionRefusesInMaintenance(t *testing.T) {
	t.Parallel()
	document := func(kind string) string { return "---\napiVersion: v1alpha1\nkind: " + kind + "\n" }
	for _, c := range []struct {
		name, version, kubernetes, more string
		mode                            machine.ApplyConfigurationRequest_Mode
		code                            codes.Code
		text                            string
	}{
		{"1.12, a document of 1.13", "v1.12.11", "1.35.4", document("KubeSpanConfig"), modeAuto, codes.Unknown, `failed to parse config: error decoding document v1alpha1/KubeSpanConfig/`},
		{"1.13, the same document", "v1.13.9", "1.36.0", document("KubeSpanConfig"), modeAuto, codes.OK, ""},
		{"1.12, a key of 1.13", "v1.12.11", "1.35.4", document("UserVolumeConfig") + "name: data\nmount:\n    secure: true\n", modeAuto, codes.Unknown, "unknown keys found during decoding:\nmount"},
		{"1.13, a document of 1.14", "v1.13.9", "1.36.0", document("SysctlConfig"), modeAuto, codes.InvalidArgument, `"SysctlConfig" "v1alpha1": not registered`},
		{"1.14, a document that can't be played", "v1.14.0", "1.37.0", document("SysctlConfig"), modeAuto, codes.InvalidArgument, "a hollow machine can't take documents of this kind"},
		{
			"1.12, a Kubernetes too new", "v1.12.11", "1.36.0", "", modeAuto, codes.InvalidArgument,
			"runtime configuration validation failed: v1alpha1.Config: kubelet image is not valid: version of Kubernetes 1.36.0 is too new to be used with Talos 1.12.11",
		},
		{"1.13, a Kubernetes too new", "v1.13.9", "1.37.0", "", modeAuto, codes.InvalidArgument, "kubelet image is not valid: version of Kubernetes 1.37.0 is too new to be used with Talos 1.13.9"},
		{"1.14, a Kubernetes too old", "v1.14.0", "1.31.9", "", modeAuto, codes.InvalidArgument, "version of Kubernetes 1.31.9 is too old to be used with Talos 1.14.0"},
		{"1.12, mode no-reboot", "v1.12.11", "1.35.4", "", modeNoReboot, codes.Unimplemented, "apply configuration --mode='no-reboot' is not supported in maintenance mode"},
		{"1.12, mode staged", "v1.12.11", "1.35.4", "", modeStaged, codes.Unimplemented, "apply configuration --mode='staged' is not supported in maintenance mode"},
		{"1.12, text that is no YAML", "v1.12.11", "1.35.4", "hello", modeAuto, codes.Unknown, "failed to parse config: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, n := booted(t, c.version)
			cluster := hollowtest.NewClusterOf(t, n.Address(), "/dev/nvme0n1", c.version, c.kubernetes)
			data := append(cluster.Config(machinetype.TypeWorker), c.more...)
			reply, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: data, Mode: c.mode, DryRun: true})
			if status.Code(err) != c.code || c.text != "" && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, %v; want %s with %q", reply, err, c.code, c.text)
			}
			if s := n.Status(); !node.InMaintenance(s) {
				t.Errorf("the machine did something: %+v", s)
			}
		})
	}
}

// The answer of 1.12's maintenance server says neither a mode nor what happens (Talos 1.12: internal/app/maintenance).
func TestTwelveAnswersAnApplyInMaintenanceWithoutAMode(t *testing.T) {
	t.Parallel()
	_, n := booted(t, "v1.12.11")
	cluster := hollowtest.NewClusterOf(t, n.Address(), "/dev/nvme0n1", "v1.12.11", "1.35.4")
	apply := func(dry bool) *machine.ApplyConfiguration {
		reply, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{
			Data: cluster.Config(machinetype.TypeControlPlane), Mode: modeAuto, DryRun: dry,
		})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetMessages()[0]
	}
	if got := apply(true); got.GetModeDetails() != "Dry run summary:\nNode is running in maintenance mode and does not have a config yet." {
		t.Errorf("dry run: %q", got.GetModeDetails())
	}
	if got := apply(false); got.GetMode() != modeReboot || got.GetModeDetails() != "" {
		t.Errorf("apply: %s, %q", got.GetMode(), got.GetModeDetails())
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Installed != nil })
}

// 1.14 does without install instructions and then runs from memory; before, they are required (talos-contract.md §4, §8).
func TestFourteenRunsFromMemoryWithoutInstallInstructions(t *testing.T) {
	t.Parallel()
	for version, kubernetes := range kubernetesOf {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			_, n := booted(t, version)
			cluster := hollowtest.NewClusterOf(t, n.Address(), "", version, kubernetes)
			before := n.Status()
			_, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{
				Data: cluster.Config(machinetype.TypeControlPlane), Mode: modeAuto,
			})
			if version != "v1.14.0" {
				if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "either install disk or diskSelector should be defined") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			after := hollowtest.Wait(t, n, func(s node.Status) bool { return slices.Contains(s.Unmet, "services: etcd not running") && s.Listening })
			if after.Installed != nil || after.BootID != before.BootID {
				t.Errorf("installed %+v, rebooted %t", after.Installed, after.BootID != before.BootID)
			}
		})
	}
}

// A version that can't read the configuration on its disk doesn't boot with it.
func TestAnOlderVersionDoesNotBootWithADocumentOfALaterOne(t *testing.T) {
	t.Parallel()
	_, n := booted(t, "v1.13.9")
	cluster := hollowtest.NewClusterOf(t, n.Address(), "/dev/nvme0n1", "v1.12.11", "1.35.4")
	data := append(cluster.Config(machinetype.TypeWorker), "---\napiVersion: v1alpha1\nkind: EnvironmentConfig\nvariables:\n    A: b\n"...)
	if _, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: data, Mode: modeAuto}); err != nil {
		t.Fatal(err)
	}
	first := hollowtest.Wait(t, n, func(s node.Status) bool { return s.Version == "v1.12.11" })
	// It says so, pauses and reboots, over and over.
	s := hollowtest.Wait(t, n, func(s node.Status) bool { return s.Version == "v1.12.11" && s.BootID != first.BootID })
	if s.Listening {
		t.Errorf("the API is open: %+v", s)
	}
}
