// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

const (
	modeReboot   = machine.ApplyConfigurationRequest_REBOOT
	modeAuto     = machine.ApplyConfigurationRequest_AUTO
	modeNoReboot = machine.ApplyConfigurationRequest_NO_REBOOT
	modeStaged   = machine.ApplyConfigurationRequest_STAGED
	modeTry      = machine.ApplyConfigurationRequest_TRY
)

// edit replaces a text in a configuration once.
func edit(t *testing.T, data []byte, from, to string) []byte {
	t.Helper()
	if !strings.Contains(string(data), from) {
		t.Fatalf("the configuration has no %q", from)
	}
	return []byte(strings.Replace(string(data), from, to, 1))
}

// stored is the text of the active or the persistent configuration.
func stored(t *testing.T, c *client.Client, id string) string {
	t.Helper()
	mc, err := safe.StateGetByID[*config.MachineConfig](patient(t), c.COSI, id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := mc.Provider().Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMaintenanceRefusesWhatIsNoConfiguration(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	c := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	good := c.Config(machinetype.TypeControlPlane)
	for _, test := range []struct {
		name string
		data []byte
		text string
	}{
		{"nothing", nil, "config not found"},
		{"text that is no YAML", []byte("hello"), "expected a YAML document at line 1"},
		{"a key that nobody knows", edit(t, good, "machine:\n", "machine:\n    nonsense: 1\n"), "nonsense"},
		{"no install section", edit(t, good, "disk: "+m.Disks[0].Device, "disk: \"\""), "either install disk or diskSelector should be defined"},
		{"a disk that isn't there", edit(t, good, "disk: "+m.Disks[0].Device, "diskSelector:\n            serial: NOPE"), "no disks matched the expression"},
		{"a Kubernetes of another age", edit(t, good, "kubelet:v", "kubelet:v1.2.3-"), "kubelet image is not valid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: test.data, Mode: modeAuto})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want InvalidArgument with %q", err, test.text)
			}
		})
	}
	if s := n.Status(); !node.InMaintenance(s) {
		t.Errorf("a refused configuration did something: %+v", s)
	}
}

func TestADryRunTellsTheModeAndDoesNothing(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	admin := c.Connect(n, role.Admin)
	data := []byte(stored(t, admin, config.ActiveID))
	for _, test := range []struct {
		name string
		data []byte
		mode machine.ApplyConfigurationRequest_Mode
		text string
	}{
		{"nothing changed", data, modeNoReboot, "Applied configuration without a reboot (skipped in dry-run).\nConfig diff:\n\nNo changes."},
		{"a label", edit(t, data, "machine:\n", "machine:\n    nodeAnnotations:\n        rack: one\n"), modeNoReboot, "rack: one"},
		{"the token", edit(t, data, "token: ", "token: x"), modeReboot, "Applied configuration with a reboot (skipped in dry-run)."},
	} {
		t.Run(test.name, func(t *testing.T) {
			reply, err := admin.ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: test.data, Mode: modeAuto, DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			if m := reply.GetMessages()[0]; m.GetMode() != test.mode || !strings.Contains(m.GetModeDetails(), test.text) {
				t.Errorf("mode %s, details %s", m.GetMode(), m.GetModeDetails())
			}
		})
	}
	if stored(t, admin, config.ActiveID) != string(data) {
		t.Error("a dry run changed the configuration")
	}
}

func TestOnAConfiguredNodeOnlyAdminsApply(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	for _, r := range []role.Role{role.Reader, role.Operator} {
		_, err := c.Connect(n, r).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: []byte("x"), Mode: modeAuto})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: got %v", r, err)
		}
	}
}

func TestAChangeThatNeedsARebootIsRefusedStagedOrRebooted(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	admin := c.Connect(n, role.Admin)
	before := n.Status()
	changed := edit(t, []byte(stored(t, admin, config.ActiveID)), "machine:\n", "machine:\n    env:\n        A: b\n")
	apply := func(mode machine.ApplyConfigurationRequest_Mode) (*machine.ApplyConfigurationResponse, error) {
		return admin.ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: changed, Mode: mode})
	}
	if _, err := apply(modeNoReboot); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "can't be applied in immediate mode") {
		t.Errorf("no-reboot: %v", err)
	}
	if _, err := apply(modeStaged); err != nil {
		t.Fatal(err)
	}
	if stored(t, admin, config.ActiveID) == string(changed) || stored(t, admin, config.PersistentID) != string(changed) {
		t.Error("staged: active and persistent are not old and new")
	}
	reply, err := apply(modeAuto)
	if err != nil {
		t.Fatal(err)
	}
	if m := reply.GetMessages()[0]; m.GetMode() != modeReboot || !strings.HasPrefix(m.GetModeDetails(), "Applied configuration with a reboot: this config change can't") {
		t.Errorf("auto: %s, %s", m.GetMode(), m.GetModeDetails())
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.BootID != before.BootID && node.Running(s) })
	if stored(t, c.Connect(n, role.Admin), config.ActiveID) != string(changed) {
		t.Error("after the reboot the new configuration is not active")
	}
}

func TestATriedConfigurationIsTakenBack(t *testing.T) {
	t.Parallel()
	_, c, n := controlPlane(t)
	admin := c.Connect(n, role.Admin)
	old := stored(t, admin, config.ActiveID)
	tried := edit(t, []byte(old), "machine:\n", "machine:\n    nodeAnnotations:\n        tried: \"yes\"\n")
	reply, err := admin.ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{
		Data: tried, Mode: modeTry, TryModeTimeout: durationpb.New(300 * time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(reply.GetMessages()[0].GetModeDetails(), "will be automatically reverted back in 300ms") {
		t.Errorf("details %s", reply.GetMessages()[0].GetModeDetails())
	}
	if stored(t, admin, config.PersistentID) != old {
		t.Error("a tried configuration was written to the disk")
	}
	watch := make(chan safe.WrappedStateEvent[*config.MachineConfig])
	if err := safe.StateWatch(patient(t), admin.COSI, config.NewMachineConfig(nil).Metadata(), watch); err != nil {
		t.Fatal(err)
	}
	for event := range watch {
		mc, err := event.Resource()
		if err != nil {
			t.Fatal(err)
		}
		if data, err := mc.Provider().Bytes(); err != nil || string(data) == old {
			break
		}
	}
}

func TestAnAnswerThatIsLostDoesNotUndoTheApply(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	n.DropApply()
	c := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	_, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{Data: c.Config(machinetype.TypeControlPlane)})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Installed != nil })
	if applies := n.Applies(); len(applies) != 1 || !applies[0].Accepted {
		t.Errorf("apply log %+v", applies)
	}
}

func TestAnApplyThatIsOnItsWayArrivesThoughItsCallerIsGone(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	n.LateApply(time.Second)
	c := hollowtest.NewCluster(t, m.Addr(), m.Disks[0].Device)
	configuration := c.Config(machinetype.TypeControlPlane)
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := hollowtest.Insecure(t, n).ApplyConfiguration(impatient, &machine.ApplyConfigurationRequest{Data: configuration})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Installed != nil })
	if applies := n.Applies(); len(applies) != 1 || !applies[0].Accepted {
		t.Errorf("apply log %+v", applies)
	}
}

func TestAStaticAddressInTheConfigurationMovesTheNode(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	m := rack.Machine()
	n := rack.Start(m)
	next := rack.Addr()
	c := hollowtest.NewCluster(t, next, m.Disks[0].Device)
	document := "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: " + m.Links[0].Name + "\naddresses:\n    - address: " + next.String() + "/24\n"
	provision(t, n, append(c.Config(machinetype.TypeControlPlane), document...))
	s := hollowtest.Wait(t, n, func(s node.Status) bool { return s.Address == next && s.Listening && s.Installed != nil })
	if _, err := c.Connect(n, role.Reader).Version(patient(t)); err != nil {
		t.Error(err)
	}
	if leaf := handshake(t, s.Address).PeerCertificates[0]; leaf.VerifyHostname(next.String()) != nil {
		t.Errorf("the certificate is not for %s: %v", next, leaf.IPAddresses)
	}
}
