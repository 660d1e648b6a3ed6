// SPDX-License-Identifier: Apache-2.0

package talosclient_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

func installerOf(version string) string {
	return machineconfig.InstallerImage("factory.talos.dev", machineconfig.PlainSchematicID, version, false)
}

// runningControlPlane is a cluster of one machine that booted and installed a version of Talos.
func runningControlPlane(t *testing.T, talosVersion, kubernetesVersion string) (*node.Node, *hollowtest.Cluster) {
	t.Helper()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	m := rack.Machine()
	m.TalosVersion = talosVersion
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	c := hollowtest.NewClusterOf(t, n.Address(), m.Disks[0].Device, talosVersion, kubernetesVersion)
	if _, err := maintenance(t, n, pinOf(n)).ApplyConfiguration(patient(t), c.Config(machinetype.TypeControlPlane), talos.ApplyAuto); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return s.Installed != nil && s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
	})
	if err := as(t, n, c, role.Admin).Bootstrap(patient(t)); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.Running)
	return n, c
}

func upgrader(t *testing.T, n *node.Node, c *hollowtest.Cluster) talos.Upgrader {
	t.Helper()
	u, ok := as(t, n, c, role.Admin).(talos.Upgrader)
	if !ok {
		t.Fatal("the connection can't upgrade")
	}
	return u
}

// deeds are what a machine did, of some kinds.
func deeds(n *node.Node, kinds ...string) (out []string) {
	for _, deed := range n.Deeds() {
		if slices.Contains(kinds, deed.What) {
			out = append(out, strings.TrimSpace(deed.What+" "+deed.Image+deed.Version))
		}
	}
	return out
}

func quiet(string) {}

// talos-contract.md §5.2: a pull tells its progress and ends with the image's name, and what isn't there is NotFound at once.
func TestAnImageIsPulled(t *testing.T) {
	t.Parallel()
	n, c := runningControlPlane(t, "v1.13.9", "1.36.2")
	u, image := upgrader(t, n, c), installerOf("v1.13.10")
	if has, err := u.HasImage(patient(t), talos.SystemImages, image); has || err != nil {
		t.Errorf("before the pull it has the image: %v, %v", has, err)
	}
	var told []string
	if err := u.PullImage(patient(t), talos.SystemImages, image, func(text string) { told = append(told, text) }); err != nil {
		t.Fatal(err)
	}
	if len(told) < 2 || told[0] != "0 of 1 layers, 0 of 100 MiB" || told[len(told)-1] != "1 of 1 layers, 100 of 100 MiB" {
		t.Errorf("it told %q", told)
	}
	for _, store := range []talos.ImageStore{talos.SystemImages, talos.KubernetesImages} {
		if has, err := u.HasImage(patient(t), store, image); has != (store == talos.SystemImages) || err != nil {
			t.Errorf("after the pull store %d has the image: %v, %v", store, has, err)
		}
	}
	for how, code := range map[string]codes.Code{"missing": codes.NotFound, "down": codes.Unknown} {
		if err := n.FailPull(how); err != nil {
			t.Fatal(err)
		}
		if err := u.PullImage(patient(t), talos.SystemImages, installerOf("v1.13.11"), quiet); talos.Code(err) != code || !talos.Refused(err) || !strings.Contains(err.Error(), "v1.13.11") {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// talos-contract.md §5.2, §9.4: the installer alone changes nothing that runs; an exit code is no error; whatever boots the
// machine next boots what was installed.
func TestAnInstallerRunsUnderTheRunningSystem(t *testing.T) {
	t.Parallel()
	n, c := runningControlPlane(t, "v1.13.9", "1.36.2")
	u, image := upgrader(t, n, c), installerOf("v1.13.10")
	if _, err := u.Install(patient(t), image, quiet); err == nil || !strings.Contains(err.Error(), "not found in containerd store") {
		t.Errorf("an image that wasn't pulled: %v", err)
	}
	if err := u.PullImage(patient(t), talos.SystemImages, image, quiet); err != nil {
		t.Fatal(err)
	}
	n.FailInstall(true)
	var said []string
	if code, err := u.Install(patient(t), image, func(text string) { said = append(said, text) }); code != 1 || err != nil || !strings.Contains(strings.Join(said, " "), "failed") {
		t.Errorf("a failing installer: %d, %v, %q", code, err, said)
	}
	if trace, err := u.InstallerTrace(patient(t), image); trace != talos.TraceFailed || err != nil {
		t.Errorf("its trace: %v, %v", trace, err)
	}
	n.FailInstall(false)
	if code, err := u.Install(patient(t), image, quiet); code != 0 || err != nil {
		t.Fatalf("the installer: %d, %v", code, err)
	}
	if trace, err := u.InstallerTrace(patient(t), image); trace != talos.TraceSucceeded || err != nil {
		t.Errorf("its trace: %v, %v", trace, err)
	}
	if trace, err := u.InstallerTrace(patient(t), strings.TrimSuffix(image, "0")); trace != talos.TraceNone || err != nil {
		t.Errorf("the trace of v1.13.1: %v, %v", trace, err)
	}
	if got := n.Status().Version; got != "v1.13.9" {
		t.Errorf("it runs %s without a reboot", got)
	}
	if err := errors.Join(n.PowerOff(), n.PowerOn()); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Version == "v1.13.10" && node.Running(s) })
	if trace, err := upgrader(t, n, c).InstallerTrace(patient(t), image); trace != talos.TraceNone || err != nil {
		t.Errorf("after a boot: %v, %v", trace, err)
	}
}

// An installer that lost its caller goes on, and a second one is refused meanwhile (talos-contract.md §5.2: "another
// installation/upgrade is already in progress").
func TestAnInstallerThatLostItsCallerGoesOn(t *testing.T) {
	t.Parallel()
	n, c := runningControlPlane(t, "v1.13.9", "1.36.2")
	u, image := upgrader(t, n, c), installerOf("v1.13.10")
	if err := u.PullImage(patient(t), talos.SystemImages, image, quiet); err != nil {
		t.Fatal(err)
	}
	if running, err := u.Installing(patient(t)); running || err != nil {
		t.Errorf("an installer runs: %v, %v", running, err)
	}
	n.SlowInstall(time.Second)
	n.DropUpgrade()
	if _, err := u.Install(patient(t), image, quiet); !talos.IsLost(err) {
		t.Fatalf("the lost call: %v", err)
	}
	u = upgrader(t, n, c)
	running, err := u.Installing(patient(t))
	if !running || err != nil {
		t.Errorf("an installer runs: %v, %v", running, err)
	}
	if _, err := u.Install(patient(t), image, quiet); !talos.IsInstalling(err) {
		t.Errorf("a second one: %v", err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Installed.Current.Version == "v1.13.10" })
	for running && err == nil {
		running, err = u.Installing(patient(t))
	}
	if trace, traceErr := u.InstallerTrace(patient(t), image); trace != talos.TraceSucceeded || errors.Join(err, traceErr) != nil {
		t.Errorf("its trace: %v, %v, %v", trace, err, traceErr)
	}
	if got := deeds(n, node.DeedInstaller); len(got) != 1 {
		t.Errorf("installers: %q", got)
	}
}

// A system that fails before it was ever ready goes back to the old one by itself (talos-contract.md §5.1, §9.4).
func TestASystemThatDoesNotComeUpGoesBack(t *testing.T) {
	t.Parallel()
	n, c := runningControlPlane(t, "v1.13.9", "1.36.2")
	u, image := upgrader(t, n, c), installerOf("v1.13.10")
	n.FailUpgradedBoot(true)
	if err := u.PullImage(patient(t), talos.SystemImages, image, quiet); err != nil {
		t.Fatal(err)
	}
	if code, err := u.Install(patient(t), image, quiet); code != 0 || err != nil {
		t.Fatalf("the installer: %d, %v", code, err)
	}
	before := len(deeds(n, node.DeedBoot))
	if err := errors.Join(n.PowerOff(), n.PowerOn()); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return len(deeds(n, node.DeedBoot)) == before+2 && s.Version == "v1.13.9" && node.Running(s)
	})
	if got, want := deeds(n, node.DeedBoot)[before:], []string{"boot v1.13.10", "boot v1.13.9"}; !slices.Equal(got, want) {
		t.Errorf("boots %q, want %q", got, want)
	}
}

// Up to 1.12 there is neither ImageService nor LifecycleService; the machine upgrades itself, and refuses a second upgrade by
// an event only (talos-contract.md §5.1, §5.2).
func TestAnOlderMachineUpgradesItself(t *testing.T) {
	t.Parallel()
	n, c := runningControlPlane(t, "v1.12.11", "1.35.4")
	u, image := upgrader(t, n, c), installerOf("v1.13.9")
	if _, err := u.Installing(patient(t)); !errors.Is(err, talos.ErrNoLifecycle) {
		t.Errorf("whether an installer runs: %v", err)
	}
	if _, err := u.Install(patient(t), image, quiet); !errors.Is(err, talos.ErrNoLifecycle) {
		t.Errorf("the newer call: %v", err)
	}
	if err := u.PullImage(patient(t), talos.SystemImages, image, quiet); err != nil {
		t.Fatal(err)
	}
	if has, err := u.HasImage(patient(t), talos.SystemImages, image); !has || err != nil {
		t.Errorf("after the pull it has the image: %v, %v", has, err)
	}
	n.SlowInstall(time.Second)
	for range 2 { // the second is refused by the lock, which the answer doesn't tell
		if err := u.UpgradeLegacy(patient(t), image); err != nil {
			t.Fatal(err)
		}
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Version == "v1.13.9" && node.Running(s) })
	if got := deeds(n, node.DeedInstaller, node.DeedToldReboot); len(got) != 1 {
		t.Errorf("installers and reboots: %q", got)
	}
}
