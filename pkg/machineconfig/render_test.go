// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

// One bundle for all tests: its RSA key takes seconds to make. It is new in each run, so that no file holds its secrets.
var bundleOnce = sync.OnceValues(func() (*secrets.Bundle, error) { return secrets.NewBundle(secrets.NewClock(), newestContract) })

func testBundle(t *testing.T) *secrets.Bundle {
	t.Helper()
	bundle, err := bundleOnce()
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func testCluster(changes ...func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	cluster := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod"},
		Spec: v1alpha1.TalosClusterSpec{
			ControlPlane: v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}},
		},
	}
	v1alpha1.SetDefaults_TalosClusterSpec(&cluster.Spec)
	for _, change := range changes {
		change(cluster)
	}
	return cluster
}

func testMachine(changes ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "4c4c4544-0051-3610-8052-b4c04f4c3132"},
		Spec: v1alpha1.TalosMachineSpec{
			Role:     v1alpha1.RoleWorker,
			Hostname: "worker-1",
			Disks:    []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}},
		},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func testFacts(cluster *v1alpha1.TalosCluster) Facts {
	return Facts{
		MaintenanceVersion: "v1.14.5",
		Versions:           Settle(cluster, ""),
		Inventory: &v1alpha1.MachineInventory{
			Disks: []v1alpha1.DiskInventory{
				{Device: "/dev/nvme0n1", Serial: "S1", WWID: "eui.01", Transport: "nvme"},
				{Device: "/dev/sda", Serial: "S2", WWID: "naa.02", Transport: "sata"},
				{Device: "/dev/sdb", Serial: "S3", WWID: "naa.03", Transport: "sata"},
				{Device: "/dev/sdc", Serial: "TWIN", WWID: "naa.04", Transport: "sata"},
				{Device: "/dev/sdd", Serial: "TWIN", WWID: "naa.05", Transport: "sata"},
				{Device: "/dev/sr0", Serial: "CD", Transport: "sata", CDROM: true, ReadOnly: true},
			},
			Links: []v1alpha1.LinkInventory{
				{Name: "enp1s0", PermanentMAC: "02:00:5e:00:53:01"},
				{Name: "enp2s0", PermanentMAC: "02:00:5e:00:53:02"},
			},
		},
	}
}

func vlan(id int32) *int32 { return &id }

// Golden files hold the redacted form with certificates and identifiers blanked: they differ in each test's bundle.
func TestRender(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		cluster func(*v1alpha1.TalosCluster)
		machine func(*v1alpha1.TalosMachine)
		facts   func(*Facts)
	}{
		"worker-dhcp-everywhere": {},
		"worker-no-hostname-old-maintenance": {
			machine: func(m *v1alpha1.TalosMachine) { m.Spec.Hostname = "" },
			facts:   func(f *Facts) { f.MaintenanceVersion, f.Versions.Kubernetes = "v1.12.3", "v1.35.4" },
		},
		"controlplane-static": {
			machine: func(m *v1alpha1.TalosMachine) {
				m.Spec.Role, m.Spec.Hostname = v1alpha1.RoleControlPlane, "cp-1"
				m.Spec.NodeLabels = map[string]string{"rack": "1", "zone": "a"}
				m.Spec.Network = &v1alpha1.MachineNetwork{
					Interface:   v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:01"},
					Addressing:  v1alpha1.AddressingStatic,
					Addresses:   []string{"10.0.0.11/24", "fd00::11/64"},
					Gateway:     "10.0.0.1",
					Nameservers: []string{"10.0.0.1", "fd00::1"},
				}
			},
		},
		"controlplane-hardened-cilium-vlan": {
			cluster: func(c *v1alpha1.TalosCluster) {
				c.Spec.CNI.Cilium = &v1alpha1.Cilium{Version: "1.20.4"}
				c.Spec.Hardening = v1alpha1.Hardening{SecureBoot: true, KubeletServingCertificates: true, AuditPolicy: v1alpha1.AuditPolicyIchor}
				c.Spec.Network = v1alpha1.ClusterNetwork{PodCIDRs: []string{"10.9.0.0/16", "fd01::/48"}, ServiceCIDRs: []string{"10.8.0.0/16", "fd02::/112"}, DNSDomain: "k8s.example"}
			},
			machine: func(m *v1alpha1.TalosMachine) {
				m.Spec.Role, m.Spec.Hostname = v1alpha1.RoleControlPlane, "cp-2"
				m.Spec.Network = &v1alpha1.MachineNetwork{
					Interface:  v1alpha1.InterfaceMatch{MAC: "02:00:5E:00:53:02"},
					Addressing: v1alpha1.AddressingStatic,
					Addresses:  []string{"10.0.40.12/24"},
					Gateway:    "10.0.40.1",
					VLAN:       vlan(40),
				}
			},
			facts: func(f *Facts) { f.Versions.SchematicID = strings.Repeat("ab", 32) },
		},
		"worker-volumes-dhcp-vlan": {
			machine: func(m *v1alpha1.TalosMachine) {
				m.Spec.Disks = []v1alpha1.MachineDisk{
					{Match: v1alpha1.DiskMatch{Serial: "S1", WWID: "eui.01"}, Role: v1alpha1.DiskSystem},
					{Match: v1alpha1.DiskMatch{WWID: "naa.02"}, Role: v1alpha1.DiskEphemeral},
					{Match: v1alpha1.DiskMatch{Serial: "S3"}, Role: v1alpha1.DiskUserVolume, Name: "data"},
					{Match: v1alpha1.DiskMatch{WWID: "naa.04"}, Role: v1alpha1.DiskStorage},
					{Match: v1alpha1.DiskMatch{WWID: "gone"}, Role: v1alpha1.DiskUnused},
				}
				m.Spec.Network = &v1alpha1.MachineNetwork{Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:01"}, Addressing: v1alpha1.AddressingDHCP, VLAN: vlan(7)}
			},
			facts: func(f *Facts) { f.Inventory.SecureBoot = true },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, m := testCluster(), testMachine()
			if tc.cluster != nil {
				tc.cluster(cluster)
			}
			if tc.machine != nil {
				tc.machine(m)
			}
			facts := testFacts(cluster)
			if tc.facts != nil {
				tc.facts(&facts)
			}
			bundle := testBundle(t)
			first, err := Render(Inputs{Bundle: bundle, Cluster: cluster, Machine: m, Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				again, err := Render(Inputs{Bundle: bundle, Cluster: cluster.DeepCopy(), Machine: m.DeepCopy(), Facts: facts})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(first, again) {
					t.Fatalf("the same input gave other bytes:\n%s", cmp.Diff(string(first), string(again)))
				}
			}
			redacted, err := Redact(first, nil)
			if err != nil {
				t.Fatal(err)
			}
			assertNoSecrets(t, bundle, redacted)
			compareGolden(t, name, redacted)
		})
	}
}

func assertNoSecrets(t *testing.T, bundle *secrets.Bundle, text []byte) {
	t.Helper()
	for what, secret := range map[string]string{
		"cluster secret":  bundle.Cluster.Secret,
		"bootstrap token": bundle.Secrets.BootstrapToken,
		"secretbox key":   bundle.Secrets.SecretboxEncryptionSecret,
		"machine token":   bundle.TrustdInfo.Token,
		"any private key": "PRIVATE KEY",
		"encoded key":     "LS0tLS1CRUdJTiBFRDI1NTE5IFBSSVZBVEUgS0VZ",
	} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the redacted configuration holds the %s", what)
		}
	}
}

var varying = regexp.MustCompile(`(?m)^(\s+)(crt|id): \S+$`)

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	got = varying.ReplaceAll(got, []byte("${1}${2}: (differs)"))
	path := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("rendered configuration differs from %s (-want +got):\n%s", path, diff)
	}
}

func TestInstallSelectorChoosesTheApprovedDiskAlone(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]v1alpha1.DiskMatch{
		"by serial": {Serial: "S2"},
		"by wwid":   {WWID: "naa.02"},
		"by both":   {Serial: "S2", WWID: "naa.02"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := testCluster()
			facts := testFacts(cluster)
			text, err := Render(Inputs{Bundle: testBundle(t), Cluster: cluster, Machine: testMachine(func(m *v1alpha1.TalosMachine) { m.Spec.Disks[0].Match = match }), Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			provider, err := configloader.NewFromBytes(text)
			if err != nil {
				t.Fatal(err)
			}
			expression, err := provider.Machine().Install().DiskMatchExpression()
			if err != nil {
				t.Fatal(err)
			}
			var chosen []string
			for _, disk := range facts.Inventory.Disks {
				ok, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{
					"disk":        &block.DiskSpec{Serial: disk.Serial, Wwid: disk.WWID, Transport: disk.Transport, Readonly: disk.ReadOnly, Cdrom: disk.CDROM},
					"system_disk": false,
				})
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					chosen = append(chosen, disk.Device)
				}
			}
			if diff := cmp.Diff([]string{"/dev/sda"}, chosen); diff != "" {
				t.Errorf("chosen disks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		machine func(*v1alpha1.TalosMachine)
		facts   func(*Facts)
		want    string
		disk    bool
	}{
		"a disk that was taken out":       {machine: disk("GONE"), want: "spec.disks[0] (serial GONE) is not on the machine", disk: true},
		"a serial that two disks have":    {machine: disk("TWIN"), want: "matches several disks: /dev/sdc, /dev/sdd", disk: true},
		"a disk that can't be written":    {machine: disk("CD"), want: "/dev/sr0 can't be written", disk: true},
		"no system disk":                  {machine: func(m *v1alpha1.TalosMachine) { m.Spec.Disks = nil }, want: "exactly one disk must have the role system, 0 have"},
		"an interface that was taken out": {machine: nic("02:00:5e:00:53:99"), want: "0 interfaces of the machine have the permanent address 02:00:5e:00:53:99"},
		"a role that isn't one":           {machine: func(m *v1alpha1.TalosMachine) { m.Spec.Role = "boss" }, want: `spec.role: "boss" is neither`},
		"a Talos that is too old":         {facts: func(f *Facts) { f.MaintenanceVersion = "v1.9.0" }, want: "v1.9 of Talos is too old"},
		"a version that is none":          {facts: func(f *Facts) { f.Versions.Talos = "latest" }, want: `"latest" is no Talos version`},
		"a Kubernetes that the version in maintenance refuses": {
			facts: func(f *Facts) { f.MaintenanceVersion = "v1.12.11" },
			want:  "the machine booted Talos v1.12.11, which takes no configuration with Kubernetes v1.36.6: version of Kubernetes 1.36.6 is too new to be used with Talos 1.12.11; boot it from an image of another version",
		},
		"a Kubernetes that the version to install refuses": {
			facts: func(f *Facts) { f.Versions.Talos, f.Versions.Kubernetes = "v1.13.9", "v1.30.1" },
			want:  "spec.talosVersion: Talos v1.13.9, which is to be installed, doesn't run Kubernetes v1.30.1: version of Kubernetes 1.30.1 is too old",
		},
		"a Kubernetes version that is none": {facts: func(f *Facts) { f.Versions.Talos, f.Versions.Kubernetes = "v1.13.9", "latest" }, want: `"latest" is no Kubernetes version`},
		"no inventory":                      {facts: func(f *Facts) { f.Inventory = nil }, want: "is not on the machine", disk: true},
		"a label that isn't one":            {machine: func(m *v1alpha1.TalosMachine) { m.Spec.NodeLabels = map[string]string{"a b": "c"} }, want: "would be refused by Talos"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, m := testCluster(), testMachine()
			facts := testFacts(cluster)
			if tc.machine != nil {
				tc.machine(m)
			}
			if tc.facts != nil {
				tc.facts(&facts)
			}
			_, err := Render(Inputs{Bundle: testBundle(t), Cluster: cluster, Machine: m, Facts: facts})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("want an error with %q, got %v", tc.want, err)
			}
			var missing *DiskError
			if errors.As(err, &missing) != tc.disk {
				t.Errorf("want DiskError: %v, got %T", tc.disk, err)
			}
		})
	}
}

func disk(serial string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Spec.Disks[0].Match = v1alpha1.DiskMatch{Serial: serial} }
}

func nic(mac string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		m.Spec.Network = &v1alpha1.MachineNetwork{Interface: v1alpha1.InterfaceMatch{MAC: mac}}
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		versions []string
		want     string
	}{
		"newer than the machinery knows":   {[]string{"v1.14.5", "v1.15.0"}, "v1.13"},
		"the version in maintenance":       {[]string{"v1.12.9", "v1.14.5"}, "v1.12"},
		"the version to install":           {[]string{"1.14.0", "1.13.2"}, "v1.13"},
		"nothing known about maintenance":  {[]string{"", "v1.12.0"}, "v1.12"},
		"a pre-release of a known version": {[]string{"v1.13.0-rc.1"}, "v1.13"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Contract(tc.versions...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.String()); diff != "" {
				t.Errorf("contract (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheRoleOfAConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]v1alpha1.MachineRole{
		"version: v1alpha1\nmachine: {type: controlplane}\n":        v1alpha1.RoleControlPlane,
		"version: v1alpha1\nmachine: {type: init}\n":                v1alpha1.RoleControlPlane,
		"version: v1alpha1\nmachine: {type: worker}\n":              v1alpha1.RoleWorker,
		"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n": "",
		"secret: [": "",
	} {
		got, err := Role([]byte(text))
		if got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret:") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
