// SPDX-License-Identifier: Apache-2.0

package talosclient_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// decided is a machine with everything that approval can decide and that becomes documents of its configuration.
func decided(m fleet.Machine, as v1alpha1.MachineRole, network *v1alpha1.MachineNetwork) *v1alpha1.TalosMachine {
	out := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(m.UUID)},
		Spec: v1alpha1.TalosMachineSpec{
			Role: as, Hostname: "n1", NodeLabels: map[string]string{"rack": "1"}, Network: network,
		},
	}
	roles := []v1alpha1.DiskRole{v1alpha1.DiskSystem, v1alpha1.DiskEphemeral, v1alpha1.DiskUserVolume}
	for i, disk := range m.Disks[:min(len(m.Disks), len(roles))] {
		entry := v1alpha1.MachineDisk{Match: v1alpha1.DiskMatch{Serial: disk.Serial}, Role: roles[i]}
		if roles[i] == v1alpha1.DiskUserVolume {
			entry.Name = "data"
		}
		out.Spec.Disks = append(out.Spec.Disks, entry)
	}
	return out
}

func cluster(n *node.Node, talosVersion, kubernetesVersion string, changes ...func(*v1alpha1.TalosClusterSpec)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod"},
		Spec: v1alpha1.TalosClusterSpec{
			TalosVersion: talosVersion, KubernetesVersion: kubernetesVersion,
			ControlPlane: v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: n.Address().String()}},
		},
	}
	v1alpha1.SetDefaults_TalosClusterSpec(&c.Spec)
	for _, change := range changes {
		change(&c.Spec)
	}
	return c
}

// bundle's service account key is of a kind that is made quickly.
func bundle(t *testing.T) *secrets.Bundle {
	t.Helper()
	b, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_6)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// versions and a Kubernetes that each of them runs.
var versions = map[string]string{"v1.12.11": "v1.35.4", "v1.13.9": "v1.36.6", "v1.14.0": "v1.36.6"}

// everyVersion is the same hardware once with each version, in maintenance.
func everyVersion(t *testing.T) (fleet.Machine, map[string]*node.Node) {
	t.Helper()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	m.Disks = append(m.Disks[:1:1], fleet.Disk{Device: "/dev/sdx", Size: 4e12, Serial: "X1"}, fleet.Disk{Device: "/dev/sdy", Size: 4e12, Serial: "Y1"})
	nodes := map[string]*node.Node{}
	for version := range versions {
		twin := rack.Machine()
		twin.UUID, twin.SerialNumber, twin.Links, twin.Disks, twin.TalosVersion = m.UUID, m.SerialNumber, m.Links, m.Disks, version
		twin.Complete()
		nodes[version] = rack.Start(twin)
		hollowtest.Wait(t, nodes[version], node.InMaintenance)
	}
	return m, nodes
}

// Decoders are strict: a document or key that the version in maintenance or the installed one doesn't know is refused. Each
// is asked for its verdict alone; what a version refuses is in package profile.
func TestWhatIsRenderedIsTakenByEveryVersionThatReadsIt(t *testing.T) {
	t.Parallel()
	secret := bundle(t)
	m, nodes := everyVersion(t)
	vlan, card := int32(20), v1alpha1.InterfaceMatch{MAC: strings.ToLower(m.Links[0].PermanentMAC)}
	networks := map[string]*v1alpha1.MachineNetwork{
		"DHCP everywhere": nil,
		"static":          {Interface: card, Addressing: v1alpha1.AddressingStatic, Addresses: []string{"10.0.0.11/24"}, Gateway: "10.0.0.1", Nameservers: []string{"10.0.0.1"}},
		"DHCP on a VLAN":  {Interface: card, VLAN: &vlan},
	}
	changes := map[string]func(*v1alpha1.TalosClusterSpec){
		"plain":    func(*v1alpha1.TalosClusterSpec) {},
		"hardened": func(s *v1alpha1.TalosClusterSpec) { s.Hardening.KubeletServingCertificates = true },
		"Cilium":   func(s *v1alpha1.TalosClusterSpec) { s.CNI.Cilium = &v1alpha1.Cilium{Version: "1.20.4"} },
	}
	for media, n := range nodes {
		facts, err := maintenance(t, n, pinOf(n)).Facts(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		for installed := range versions {
			kubernetes := min(versions[media], versions[installed])
			for _, as := range []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
				for network, chosen := range networks {
					for what, change := range changes {
						c := cluster(n, installed, kubernetes, change)
						text, err := machineconfig.Render(machineconfig.Inputs{Bundle: secret, Cluster: c, Machine: decided(m, as, chosen), Facts: machineconfig.Facts{
							MaintenanceVersion: facts.TalosVersion, Inventory: facts.Inventory, Versions: machineconfig.Settle(c, ""),
						}})
						if err != nil {
							t.Fatal(err)
						}
						for _, reader := range []string{media, installed} {
							if err := judge(t, nodes[reader], text); err != nil {
								t.Errorf("a %s with %s, %s, booted from %s to install %s: %s refuses it: %v", as, network, what, media, installed, reader, err)
							}
						}
					}
				}
			}
		}
	}
}

// judge asks a machine what it thinks of a configuration.
func judge(t *testing.T, n *node.Node, text []byte) error {
	t.Helper()
	_, err := hollowtest.Insecure(t, n).ApplyConfiguration(patient(t), &machine.ApplyConfigurationRequest{
		Data: text, Mode: machine.ApplyConfigurationRequest_AUTO, DryRun: true,
	})
	return err
}

func TestAKubernetesThatTheMediaRefuseIsToldBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	_, nodes := everyVersion(t)
	n := nodes["v1.12.11"]
	facts, err := maintenance(t, n, pinOf(n)).Facts(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	m := decided(fleet.Machine{Disks: []fleet.Disk{{Serial: "X1"}}}, v1alpha1.RoleWorker, nil)
	c := cluster(n, "v1.13.9", "v1.36.6")
	_, err = machineconfig.Render(machineconfig.Inputs{Bundle: bundle(t), Cluster: c, Machine: m, Facts: machineconfig.Facts{
		MaintenanceVersion: facts.TalosVersion, Inventory: facts.Inventory, Versions: machineconfig.Settle(c, ""),
	}})
	if err == nil || !strings.Contains(err.Error(), "the machine booted Talos v1.12.11, which takes no configuration with Kubernetes v1.36.6") {
		t.Errorf("got %v", err)
	}
	if got := n.Status().Applies; got != 0 {
		t.Errorf("the machine was sent %d configurations", got)
	}
}

// An apply is accepted without a word on 1.12, and the same calls work on all versions afterwards.
func TestAMachineOfEveryVersionBecomesAControlPlane(t *testing.T) {
	t.Parallel()
	for version, kubernetes := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rack := hollowtest.NewRack(t)
			rack.Workload = hollowtest.FakeWorkload{}
			m := rack.Machine()
			m.TalosVersion = version
			n := rack.Start(m)
			hollowtest.Wait(t, n, node.InMaintenance)
			cluster := hollowtest.NewClusterOf(t, n.Address(), m.Disks[0].Device, version, strings.TrimPrefix(kubernetes, "v"))
			config := cluster.Config(machinetype.TypeControlPlane)
			result, err := maintenance(t, n, pinOf(n)).ApplyConfiguration(patient(t), config, talos.ApplyAuto)
			if err != nil || result.Rebooting {
				t.Fatalf("apply: %+v, %v", result, err)
			}
			hollowtest.Wait(t, n, func(s node.Status) bool {
				return s.Installed != nil && s.Stage == "booting" && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
			})
			if probe := prober.Probe(patient(t), n.Address()); probe.Class != v1alpha1.HostAlreadyConfigured {
				t.Errorf("probe %+v", probe)
			}
			connection := configured(t, n, cluster)
			if err := connection.Bootstrap(patient(t)); err != nil {
				t.Fatal(err)
			}
			hollowtest.Wait(t, n, node.Running)
			running, err := connection.RunningConfiguration(patient(t))
			if err != nil || !bytes.Equal(running, config) {
				t.Errorf("the running configuration isn't what was applied, error %v", err)
			}
			facts, err := connection.Facts(patient(t))
			if err != nil || facts.TalosVersion != version || facts.SchematicID == "" || facts.Stage.Stage != v1alpha1.StageRunning || facts.SystemDisk == nil {
				t.Errorf("facts %+v, %v", facts, err)
			}
			if boot, err := connection.BootID(patient(t)); err != nil || boot != n.Status().BootID {
				t.Errorf("boot id %q, %v; want %q", boot, err, n.Status().BootID)
			}
			// A reader may not read the kernel's file; 1.14 has a resource for it.
			reader, err := dialer.DialConfigured(patient(t), n.Address(), credentials(t, cluster, role.Reader))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reader.Close() }()
			boot, err := reader.BootID(patient(t))
			if found := err == nil && boot == n.Status().BootID; found != (version == "v1.14.0") {
				t.Errorf("as a reader: boot id %q, %v", boot, err)
			}
		})
	}
}
