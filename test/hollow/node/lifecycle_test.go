// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

func installerImage(version string) string {
	return "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:" + version
}

// bootID reads what talosctl reads.
func bootID(t *testing.T, c *client.Client) string {
	t.Helper()
	r, err := c.Read(patient(t), "/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// follow collects the texts of an actor's events until one has the wanted text.
func follow(t *testing.T, c *client.Client, want string, options ...client.EventsOptionFunc) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	results := make(chan client.EventResult)
	if err := c.EventsWatchV2(ctx, results, options...); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for r := range results {
		if r.Error != nil {
			t.Fatalf("%v; saw %q", r.Error, seen)
		}
		text := describe(r.Event.Payload)
		seen = append(seen, text)
		if strings.Contains(text, want) {
			return seen
		}
	}
	t.Fatalf("the events ended; saw %q", seen)
	return nil
}

func describe(payload any) string {
	switch e := payload.(type) {
	case *machine.SequenceEvent:
		return "sequence " + e.GetSequence() + " " + e.GetAction().String() + " " + e.GetError().GetCode().String()
	case *machine.PhaseEvent:
		return "phase " + e.GetPhase() + " " + e.GetAction().String()
	case *machine.TaskEvent:
		return "task " + e.GetTask() + " " + e.GetAction().String()
	case *machine.MachineStatusEvent:
		return "status " + e.GetStage().String()
	case *machine.ServiceStateEvent:
		return "service " + e.GetService() + " " + e.GetAction().String()
	}
	return "other"
}

func TestARebootIsToldByEventsAndHasAnotherBootID(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	admin := c.Connect(n, role.Admin)
	before := bootID(t, admin)
	all := follow(t, admin, "sequence boot STOP", client.WithTailEvents(-1))
	for _, want := range []string{
		"sequence initialize START FATAL", "phase config START", "sequence install START FATAL", "sequence boot START FATAL",
		"phase startEverything START", "service etcd PREPARING", "status BOOTING",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no event %q among %q", want, all)
		}
	}
	// The stream is open before the reboot is asked for: afterwards there is little time to open one.
	results := make(chan client.EventResult)
	if err := admin.EventsWatchV2(patient(t), results); err != nil {
		t.Fatal(err)
	}
	reply, err := admin.RebootWithResponse(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for r := range results {
		if r.Error != nil || slices.Contains(seen, "phase kexec START") {
			break
		}
		if r.Event.ActorID == reply.GetMessages()[0].GetActorId() {
			seen = append(seen, describe(r.Event.Payload))
		}
	}
	if !slices.Contains(seen, "sequence reboot START FATAL") || !slices.Contains(seen, "phase kexec START") {
		t.Errorf("events of the reboot: %q", seen)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.BootID != before && node.Running(s) })
	if after := bootID(t, c.Connect(n, role.Admin)); after == before {
		t.Error("the boot id survived a reboot")
	}
}

func TestAShutdownCutsThePowerUntilSomeoneSwitchesItOn(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	if err := c.Connect(n, role.Operator).Shutdown(patient(t)); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.IsOff)
	if err := n.PowerOn(); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.Running)
}

func TestAnUpgradeByTheInstallerBootsTheNewVersionAfterAReboot(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	admin := c.Connect(n, role.Admin)
	ctx := patient(t)
	upgrade := func(version string) (int32, string) {
		t.Helper()
		hollowtest.Pull(ctx, t, admin, installerImage(version))
		stream, err := admin.LifecycleClient.Upgrade(ctx, &machine.LifecycleServiceUpgradeRequest{
			Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM},
			Source:     &machine.InstallArtifactsSource{ImageName: installerImage(version)},
		})
		if err != nil {
			t.Fatal(err)
		}
		code, last := int32(-1), ""
		for {
			p, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return code, last
			}
			if err != nil {
				t.Fatal(err)
			}
			if m := p.GetProgress().GetMessage(); m != "" {
				last = m
			} else {
				code = p.GetProgress().GetExitCode()
			}
		}
	}
	if code, text := upgrade("v1.13.10"); code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if got := n.Status(); got.Version != "v1.13.9" || got.Installed.Current.Version != "v1.13.10" {
		t.Errorf("before the reboot: running %s, installed %+v", got.Version, got.Installed)
	}
	before := n.Status().BootID
	if err := admin.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.BootID != before && s.Version == "v1.13.10" && node.Running(s) })
	before = n.Status().BootID
	if err := c.Connect(n, role.Admin).Rollback(patient(t)); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.BootID != before && s.Version == "v1.13.9" && node.Running(s) })
	n.FailInstall(true)
	admin = c.Connect(n, role.Admin)
	ctx = patient(t)
	if code, _ := upgrade("v1.13.10"); code != 1 {
		t.Errorf("a failing installer's exit code is %d", code)
	}
}

func TestAFailedUpgradeOfTheOldKindBootsTheOldVersion(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	before := n.Status()
	n.FailInstall(true)
	//lint:ignore SA1019 the call that older clients make is what is tested
	if _, err := c.Connect(n, role.Admin).UpgradeWithOptions(patient(t), client.WithUpgradeImage(installerImage("v1.13.10"))); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.BootID != before.BootID && node.Running(s) })
	if got := n.Status().Version; got != before.Version {
		t.Errorf("version %s", got)
	}
}

func TestAStagedUpgradeInstallsAtTheNextBoot(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	//lint:ignore SA1019 the call that older clients make is what is tested
	_, err := c.Connect(n, role.Admin).UpgradeWithOptions(patient(t), client.WithUpgradeImage(installerImage("v1.13.10")), client.WithUpgradeStage(true))
	if err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Version == "v1.13.10" && node.Running(s) })
}

func TestResetOfTheSystemDiskGoesBackToMaintenance(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	if err := c.Connect(n, role.Admin).Reset(patient(t), false, true); err != nil {
		t.Fatal(err)
	}
	if s := hollowtest.Wait(t, n, node.InMaintenance); s.Installed != nil {
		t.Errorf("installed: %+v", s.Installed)
	}
}

func TestResetOfStateAndEphemeralKeepsMetaAndTheInstallation(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	admin := c.Connect(n, role.Admin)
	identity := func(c *client.Client) string {
		t.Helper()
		r, err := safe.StateGetByID[*cluster.Identity](patient(t), c.COSI, cluster.LocalIdentity)
		if err != nil {
			t.Fatal(err)
		}
		return r.TypedSpec().NodeID
	}
	before := identity(admin)
	if err := admin.MetaWrite(patient(t), meta.UserReserved1, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	err := admin.ResetGeneric(patient(t), &machine.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{
		{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := hollowtest.Wait(t, n, node.InMaintenance)
	if s.Installed == nil {
		t.Error("the installation is gone")
	}
	anonymous := hollowtest.Insecure(t, n)
	if identity(anonymous) == before {
		t.Error("the identity survived the wipe of STATE")
	}
	disk, err := safe.StateGetByID[*block.SystemDisk](patient(t), anonymous.COSI, block.SystemDiskID)
	if err != nil || disk.TypedSpec().DevPath == "" {
		t.Errorf("system disk: %v", err)
	}
	provisionAgain := &machine.ApplyConfigurationRequest{Data: c.Config(machinetype.TypeControlPlane)}
	if _, err := anonymous.ApplyConfiguration(patient(t), provisionAgain); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return s.Stage == "booting" && slices.Contains(s.Unmet, "services: etcd not running") && s.Listening && s.Mode == node.ModeConfigured
	})
	keys, err := c.Connect(n, role.Admin).COSI.Get(patient(t), block.NewVolumeStatus(block.NamespaceName, "META").Metadata())
	if err != nil || keys == nil {
		t.Error(err)
	}
}

func TestAGracefulResetOfTheLastControlPlaneFailsAndWipesNothing(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	before := n.Status().BootID
	if err := c.Connect(n, role.Admin).Reset(patient(t), true, true); err != nil {
		t.Fatal(err)
	}
	s := hollowtest.Wait(t, n, func(s node.Status) bool { return s.BootID != "" && s.BootID != before && node.Running(s) })
	if s.Installed == nil {
		t.Error("it was wiped")
	}
}

func TestASecondSequenceIsRefusedByAnEventOnly(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	m := rack.Machine()
	m.Timings.Install = hour
	c := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	if _, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: c.Config(machinetype.TypeControlPlane)}); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return s.Stage == "installing" && s.Listening && s.Mode == node.ModeConfigured
	})
	admin := c.Connect(n, role.Admin)
	reply, err := admin.RebootWithResponse(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	follow(t, admin, "sequence reboot NOOP LOCKED", client.WithTailEvents(-1), client.WithActorID(reply.GetMessages()[0].GetActorId()))
}

func TestResetChecksWhatItIsTold(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	system := n.Status().Installed.Device
	for _, test := range []struct {
		name string
		req  *machine.ResetRequest
		text string
	}{
		{"a disk that isn't there", &machine.ResetRequest{UserDisksToWipe: []string{"/dev/sdz"}}, "device /dev/sdz wasn't found"},
		{"the system disk", &machine.ResetRequest{UserDisksToWipe: []string{system}}, "device " + system + " is the system disk"},
		{"user disks with the mode for the system disk", &machine.ResetRequest{UserDisksToWipe: []string{"/dev/sda"}, Mode: machine.ResetRequest_SYSTEM_DISK}, "doesn't support UserDisksToWipe"},
		{"a partition that isn't there", &machine.ResetRequest{SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "NOPE", Wipe: true}}}, `failed to get volume status with label "NOPE"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := c.Connect(n, role.Admin).ResetGeneric(patient(t), test.req)
			if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want Unknown with %q", err, test.text)
			}
		})
	}
}

func TestAnyoneWipesADataDiskInMaintenanceOnly(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	m.Disks[0].Signature = "ext4"
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	anonymous := hollowtest.Insecure(t, n)
	name := strings.TrimPrefix(m.Disks[0].Device, "/dev/")
	signature := func() string {
		t.Helper()
		v, err := safe.StateGetByID[*block.DiscoveredVolume](patient(t), anonymous.COSI, name)
		if err != nil {
			t.Fatal(err)
		}
		return v.TypedSpec().Name
	}
	if signature() != "ext4" {
		t.Errorf("signature %q", signature())
	}
	for device, code := range map[string]codes.Code{"nope": codes.NotFound, "loop0": codes.FailedPrecondition, name: codes.OK} {
		err := anonymous.BlockDeviceWipe(patient(t), &storage.BlockDeviceWipeRequest{Devices: []*storage.BlockDeviceWipeDescriptor{{Device: device}}})
		if status.Code(err) != code {
			t.Errorf("%s: got %v, want %s", device, err, code)
		}
	}
	if signature() != "" {
		t.Errorf("signature %q after the wipe", signature())
	}
}

func TestHardwareChangesShowAfterThePowerCut(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	if err := n.PresentUUID("00000000-0000-0000-0000-000000000000"); err != nil {
		t.Fatal(err)
	}
	if err := n.SwapNIC(m.Links[0].Name, "02:00:00:00:00:99"); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.InMaintenance)
	r, err := safe.StateGetByID[*hardware.SystemInformation](patient(t), hollowtest.Insecure(t, n).COSI, hardware.SystemInformationID)
	if err != nil || r.TypedSpec().UUID != "00000000-0000-0000-0000-000000000000" {
		t.Errorf("%v, %v", r, err)
	}
	if err := n.SwapNIC("nope", "02:00:00:00:00:99"); !errors.Is(err, node.ErrNoSuchLink) {
		t.Errorf("got %v", err)
	}
}
