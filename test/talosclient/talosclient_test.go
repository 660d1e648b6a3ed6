// SPDX-License-Identifier: Apache-2.0

package talosclient_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.uber.org/goleak"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	prober = talos.NewProber(talos.ProbeOptions{})
	dialer = talos.NewDialer(talos.DialOptions{})
)

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*hollowtest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func maintenance(t *testing.T, n *node.Node, pin talos.Fingerprint) talos.MaintenanceNode {
	t.Helper()
	connection, err := dialer.DialMaintenance(patient(t), n.Address(), pin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func configured(t *testing.T, n *node.Node, c *hollowtest.Cluster) talos.ConfiguredNode {
	t.Helper()
	connection, err := dialer.DialConfigured(patient(t), n.Address(), credentials(t, c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// credentials are an administrator's, unless roles are given.
func credentials(t *testing.T, c *hollowtest.Cluster, roles ...role.Role) talos.Credentials {
	t.Helper()
	if len(roles) == 0 {
		roles = []role.Role{role.Admin}
	}
	certificate, err := c.Bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(roles...), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return talos.Credentials{CA: c.Bundle.Certs.OS.Crt, Certificate: certificate.Crt, Key: certificate.Key}
}

func pinOf(n *node.Node) talos.Fingerprint { return talos.Fingerprint(n.Status().Fingerprint) }

func TestAMachineInMaintenance(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.12.11", "v1.13.9", "v1.14.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rack := hollowtest.NewRack(t)
			m := rack.Machine()
			m.TalosVersion = version
			n := rack.Start(m)
			status := hollowtest.Wait(t, n, node.InMaintenance)

			probe := prober.Probe(patient(t), n.Address())
			want := talos.Probe{Address: n.Address(), Class: v1alpha1.HostMaintenance, Fingerprint: talos.Fingerprint(status.Fingerprint), Message: "a Talos machine in maintenance mode"}
			if diff := cmp.Diff(want, probe, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("probe (-want +got):\n%s", diff)
			}

			connection := maintenance(t, n, probe.Fingerprint)
			facts, err := connection.Facts(patient(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(identityOf(m), facts.Identity); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
			if facts.Addresses[0] != n.Address().String() || facts.TalosVersion != version || facts.Stage.Stage != v1alpha1.StageMaintenance ||
				!facts.FirmwareRead || facts.SchematicID != m.Schematic || facts.SystemDisk != nil {
				t.Errorf("facts %+v", facts)
			}
			compareInventory(t, m, facts.Inventory)
			id, err := connection.Identity(patient(t))
			if diff := cmp.Diff(facts.Identity, id); diff != "" || err != nil {
				t.Errorf("identity read alone, error %v (-facts +identity):\n%s", err, diff)
			}
		})
	}
}

func identityOf(m fleet.Machine) v1alpha1.MachineIdentity {
	id := v1alpha1.MachineIdentity{UUID: strings.ToLower(m.UUID), SerialNumber: m.SerialNumber}
	for _, link := range m.Links {
		if link.Kind == "" && link.PermanentMAC != "" {
			id.MACAddresses = append(id.MACAddresses, strings.ToLower(link.PermanentMAC))
		}
	}
	slices.Sort(id.MACAddresses)
	return id
}

func compareInventory(t *testing.T, m fleet.Machine, inventory *v1alpha1.MachineInventory) {
	t.Helper()
	if inventory == nil {
		t.Fatal("no inventory")
	}
	if got, want := inventory.Memory.Value(), int64(m.Memory); got != want {
		t.Errorf("memory %d, want %d", got, want)
	}
	serials := map[string]string{}
	for _, disk := range m.Disks {
		serials[disk.Device] = disk.Serial
	}
	got := map[string]string{}
	for _, disk := range inventory.Disks {
		got[disk.Device] = disk.Serial
	}
	if diff := cmp.Diff(serials, got); diff != "" {
		t.Errorf("disks' serials (-want +got):\n%s", diff)
	}
}

func TestNothingIsAppliedToAnotherCertificate(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	n := rack.Start(rack.Machine())
	hollowtest.Wait(t, n, node.InMaintenance)
	approved := pinOf(n)
	n.NewCertificate()
	hollowtest.Wait(t, n, func(s node.Status) bool { return node.InMaintenance(s) && s.Fingerprint != string(approved) })
	calls := len(n.Status().Calls)

	_, err := dialer.DialMaintenance(patient(t), n.Address(), approved)
	var mismatch *talos.FingerprintError
	if !errors.As(err, &mismatch) || mismatch.Want != approved || mismatch.Got != pinOf(n) {
		t.Fatalf("got error %v, want one with both fingerprints", err)
	}
	if status := n.Status(); len(status.Calls) != calls || status.Applies != 0 {
		t.Errorf("the machine was called: %v", status.Calls)
	}
}

func TestAMachineBecomesAControlPlane(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	cluster := hollowtest.NewCluster(t, n.Address(), m.Disks[0].Device)
	config := cluster.Config(machinetype.TypeControlPlane)

	result, err := maintenance(t, n, pinOf(n)).ApplyConfiguration(patient(t), config, talos.ApplyAuto)
	if err != nil || result.Rebooting || !strings.Contains(result.Details, "without a reboot") {
		t.Fatalf("apply: %+v, %v", result, err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return s.Installed != nil && s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
	})
	if probe := prober.Probe(patient(t), n.Address()); probe.Class != v1alpha1.HostAlreadyConfigured || probe.Message != "a configured Talos machine" {
		t.Errorf("probe %+v", probe)
	}

	connection := configured(t, n, cluster)
	running, err := connection.RunningConfiguration(patient(t))
	if err != nil || !bytes.Equal(running, config) {
		t.Errorf("the running configuration isn't what was applied, error %v", err)
	}
	boot, err := connection.BootID(patient(t))
	if err != nil || boot != n.Status().BootID {
		t.Errorf("boot id %q, error %v; want %q", boot, err, n.Status().BootID)
	}
	if err := connection.Bootstrap(patient(t)); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.Running)
	if err := connection.Bootstrap(patient(t)); !talos.IsAlreadyBootstrapped(err) {
		t.Errorf("second bootstrap: %v", err)
	}
	facts, err := connection.Facts(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	if !facts.Stage.Ready || facts.Stage.Stage != v1alpha1.StageRunning || facts.NodeName == "" || facts.SystemDisk == nil || facts.SystemDisk.Serial != m.Disks[0].Serial {
		t.Errorf("facts %+v", facts)
	}
	if diff := cmp.Diff(identityOf(m), facts.Identity); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
}

func TestAnotherClustersMachineLetsNobodyIn(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	m.State = fleet.StateForeign
	n := rack.Start(m)
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Listening && s.Mode == node.ModeConfigured })
	if probe := prober.Probe(patient(t), n.Address()); probe.Class != v1alpha1.HostAlreadyConfigured {
		t.Errorf("probe %+v", probe)
	}
	ours := hollowtest.NewCluster(t, n.Address(), "/dev/sda")
	if _, err := dialer.DialConfigured(patient(t), n.Address(), credentials(t, ours)); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got error %v", err)
	}
}

func TestALostAnswerIsNotTakenForARefusal(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	cluster := hollowtest.NewCluster(t, n.Address(), m.Disks[0].Device)
	connection := maintenance(t, n, pinOf(n))
	n.DropApply()
	_, err := connection.ApplyConfiguration(patient(t), cluster.Config(machinetype.TypeControlPlane), talos.ApplyAuto)
	var failed *talos.ApplyError
	if !errors.As(err, &failed) || !failed.MaybeDelivered {
		t.Errorf("got error %v, want one that doesn't know", err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Applies == 1 })
}

func TestARefusedConfigurationSaysWhy(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	n := rack.Start(rack.Machine())
	hollowtest.Wait(t, n, node.InMaintenance)
	cluster := hollowtest.NewCluster(t, n.Address(), "/dev/not-there")
	for name, config := range map[string][]byte{
		"no YAML":      []byte("{"),
		"another kind": []byte("apiVersion: v1alpha1\nkind: FromTheFuture\n"),
		"no such disk": bytes.Replace(cluster.Config(machinetype.TypeWorker), []byte("disk: /dev/not-there"), []byte("disk: \"\""), 1),
	} {
		_, err := maintenance(t, n, pinOf(n)).ApplyConfiguration(patient(t), config, talos.ApplyAuto)
		var failed *talos.ApplyError
		if !errors.As(err, &failed) || !failed.Delivered || failed.MaybeDelivered {
			t.Errorf("%s: got error %v, want a refusal", name, err)
		}
	}
}

func TestAMachineThatHangsIsGivenUpOn(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	n := rack.Start(rack.Machine())
	hollowtest.Wait(t, n, node.InMaintenance)
	n.HangTLS(true)
	t.Cleanup(func() { n.HangTLS(false) })
	begin := time.Now()
	probe := talos.NewProber(talos.ProbeOptions{HandshakeTimeout: time.Second}).Probe(patient(t), n.Address())
	if probe.Class != v1alpha1.HostNotTalos || time.Since(begin) > hollowtest.Patience {
		t.Errorf("probe %+v after %s", probe, time.Since(begin))
	}
}
