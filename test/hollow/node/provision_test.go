// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// provision applies a configuration in maintenance and waits for the boot from disk.
func provision(t *testing.T, n *node.Node, data []byte) {
	t.Helper()
	first := hollowtest.Wait(t, n, node.InMaintenance)
	reply, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: data, Mode: machine.ApplyConfigurationRequest_AUTO})
	if err != nil {
		t.Fatal(err)
	}
	if got := reply.GetMessages()[0].GetModeDetails(); got != "Applied configuration without a reboot" {
		t.Errorf("mode details %q", got)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Installed != nil && s.BootID != "" && s.BootID != first.BootID })
}

// controlPlane is a rack with a bootstrapped control plane.
func controlPlane(t *testing.T) (*hollowtest.Rack, *hollowtest.Cluster, *node.Node) {
	t.Helper()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	m := rack.Machine()
	c := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	n := rack.Start(m)
	provision(t, n, c.Config(machinetype.TypeControlPlane))
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
	})
	if err := c.Connect(n, role.Admin).Bootstrap(patient(t), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.Running)
	return rack, c, n
}

func TestAControlPlaneIsInstalledBootstrappedAndReady(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	admin := c.Connect(n, role.Admin)
	ctx := patient(t)
	disk, err := safe.StateGetByID[*block.SystemDisk](ctx, admin.COSI, block.SystemDiskID)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := disk.TypedSpec().DevPath, n.Status().Installed.Device; got != want {
		t.Errorf("system disk %s, want %s", got, want)
	}
	for _, id := range []string{config.ActiveID, config.PersistentID} {
		mc, err := safe.StateGetByID[*config.MachineConfig](ctx, admin.COSI, id)
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := mc.Provider().Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if string(bytes) != string(c.Config(machinetype.TypeControlPlane)) {
			t.Errorf("configuration %q is not what was applied", id)
		}
	}
	applies := n.Applies()
	if len(applies) != 1 || !applies[0].Accepted || !applies[0].Maintenance || applies[0].Outcome != "NO_REBOOT" {
		t.Errorf("apply log %+v, want one accepted apply", applies)
	}
}

func TestAWorkerGetsItsCertificateFromTheControlPlane(t *testing.T) {
	t.Parallel()
	rack, c, _ := controlPlane(t)
	m := rack.Machine()
	n := rack.Start(m)
	provision(t, n, c.Config(machinetype.TypeWorker))
	hollowtest.Wait(t, n, node.Running)
	if _, err := c.Connect(n, role.Reader).Version(patient(t)); err != nil {
		t.Error(err)
	}
}

func TestWhatADiskHoldsSurvivesAPowerCutAndNothingElse(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	id := func() string {
		t.Helper()
		r, err := safe.StateGetByID[*cluster.Identity](patient(t), c.Connect(n, role.Admin).COSI, cluster.LocalIdentity)
		if err != nil {
			t.Fatal(err)
		}
		return r.TypedSpec().NodeID
	}
	before, identity := n.Status(), id()
	if err := n.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if s := n.Status(); s.Listening || s.Stage != "" {
		t.Errorf("still alive without power: %+v", s)
	}
	if err := n.PowerOn(); err != nil {
		t.Fatal(err)
	}
	after := hollowtest.Wait(t, n, node.Running)
	if after.BootID == before.BootID || after.Fingerprint == before.Fingerprint {
		t.Errorf("boot id %s and fingerprint %s survived", after.BootID, after.Fingerprint)
	}
	if after.Hostname != before.Hostname || id() != identity {
		t.Error("the identity did not survive")
	}
}

func TestAPowerCutBeforeTheInstallationEndsLosesTheConfiguration(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	m.Timings.Install = hour
	n := rack.Start(m)
	first := hollowtest.Wait(t, n, node.InMaintenance)
	c := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	if _, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: c.Config(machinetype.TypeControlPlane)}); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Stage == "installing" && s.Mode == node.ModeConfigured })
	if err := n.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := n.PowerOn(); err != nil {
		t.Fatal(err)
	}
	again := hollowtest.Wait(t, n, node.InMaintenance)
	if again.Installed != nil {
		t.Errorf("installed: %+v", again.Installed)
	}
	if again.Fingerprint == first.Fingerprint {
		t.Error("the maintenance certificate survived a boot")
	}
}

func TestAWipedMachineIsBackInMaintenance(t *testing.T) {
	t.Parallel()
	_, _, n := controlPlane(t)
	if err := n.Wipe(); err != nil {
		t.Fatal(err)
	}
	if s := hollowtest.Wait(t, n, node.InMaintenance); s.Installed != nil {
		t.Errorf("installed: %+v", s.Installed)
	}
}

func TestTheApplyLogHoldsNoConfiguration(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	c := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	_, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{
		Data: c.Config(machinetype.TypeControlPlane), DryRun: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(rack.Dir(), m.Name, "applies.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(data), "\n") != 1 || strings.Contains(string(data), "machine:") || strings.Contains(string(data), "PRIVATE") {
		t.Errorf("apply log: %s", data)
	}
	if calls := n.Status().Calls["/machine.MachineService/ApplyConfiguration"]; calls.Count != 1 || calls.RequestBytes < 1000 {
		t.Errorf("counted %+v", calls)
	}
}
