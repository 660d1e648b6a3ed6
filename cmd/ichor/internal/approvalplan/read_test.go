// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestReadPutsDefaultsUnderEntries(t *testing.T) {
	t.Parallel()
	items := read(t, head+`defaults:
  clusterRef: {name: prod}
  role: worker
  nodeLabels: {rack: "1", zone: a}
  network: {gateway: 10.0.0.1, nameservers: [10.0.0.1], vlan: 40, interface: {name: enp1s0}}
  reason: rack 1
machines:
- serialNumber: 0123
  hostname: no
  network: {addresses: [10.0.0.11/24]}
- uuid: `+uuidB+`
  role: controlplane
  nodeLabels: {zone: b}
  installDisk: {serial: 1e5}
  network: {addressing: dhcp}
---
# A second document has defaults of its own.
`+head+`machines:
- {name: weak-c, role: worker, disks: [{match: {wwid: eui.1}, role: userVolume, name: data}]}
`)
	vlan := int32(40)
	got := make([]Entry, 0, len(items))
	for _, item := range items {
		got = append(got, item.Entry)
	}
	prod := v1alpha1.ClusterReference{Name: "prod"}
	want := []Entry{
		{
			SerialNumber: "0123", Hostname: "no",
			Settings: Settings{
				ClusterRef: prod, Role: "worker", NodeLabels: map[string]string{"rack": "1", "zone": "a"}, Reason: "rack 1",
				Network: &Network{Interface: Interface{Name: "enp1s0"}, Addresses: []string{"10.0.0.11/24"}, Gateway: "10.0.0.1", Nameservers: []string{"10.0.0.1"}, VLAN: &vlan},
			},
		},
		{
			UUID: uuidB, InstallDisk: &v1alpha1.DiskMatch{Serial: "1e5"},
			Settings: Settings{
				ClusterRef: prod, Role: "controlplane", NodeLabels: map[string]string{"rack": "1", "zone": "b"}, Reason: "rack 1",
				Network: &Network{Interface: Interface{Name: "enp1s0"}, Addressing: "dhcp", Nameservers: []string{"10.0.0.1"}, VLAN: &vlan},
			},
		},
		{
			Name: "weak-c", Settings: Settings{Role: "worker"},
			Disks: []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{WWID: "eui.1"}, Role: "userVolume", Name: "data"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestReadRefusesWithLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"an empty file", "# nothing\n", []string{"plan.yaml:1: the file has no document; want apiVersion: " + APIVersion + ", kind: " + Kind}},
		{"what is no YAML", head + "machines: [\n", []string{"plan.yaml:3: no YAML: while parsing a flow node"}},
		{"another kind", "apiVersion: ichor.maesh.dev/v1alpha1\nkind: TalosMachine\n", []string{`plan.yaml:1: apiVersion: "ichor.maesh.dev/v1alpha1" isn't what this program reads; want ` + APIVersion}},
		{"no kind", "apiVersion: " + APIVersion + "\n", []string{"plan.yaml:1: kind is missing; want kind: " + Kind}},
		{"a list", "- serialNumber: A\n", []string{"plan.yaml:1: want a document with apiVersion"}},
		{"no machines", head + "defaults: {role: worker}\n", []string{"plan.yaml:1: machines: the plan names no machine"}},
		{"unknown fields, all of them, with what may be meant", head + `defaults:
  rol: worker
  cluster: prod
machines:
- serial: A
  hostName: a
  disks:
  - {match: {serialnumber: S1}, role: sytem}
  colour: blue
`, []string{
			`plan.yaml:4: defaults: unknown field "rol"; did you mean role?`,
			`plan.yaml:5: defaults: unknown field "cluster"; did you mean clusterRef?`,
			`plan.yaml:7: machines[0]: unknown field "serial"; did you mean serialNumber?`,
			`plan.yaml:8: machines[0]: unknown field "hostName"; did you mean hostname?`,
			`plan.yaml:10: machines[0].disks[0].match: unknown field "serialnumber"; there are serial, wwid`,
			`plan.yaml:11: machines[0]: unknown field "colour"; there are clusterRef, disks, hostname`,
			`plan.yaml:10: machines[0].disks[0].role: "sytem" is none of them; did you mean system?`,
		}},
		{"values of another type", head + `machines:
- serialNumber: [A]
  network: {vlan: forty, addresses: 10.0.0.1/24}
  nodeLabels: rack
- hello
`, []string{
			"plan.yaml:4: machines[0].serialNumber: want one value, not a list",
			`plan.yaml:5: machines[0].network.vlan: "forty" is no whole number`,
			`plan.yaml:5: machines[0].network.addresses: want a list (lines that begin with a hyphen), not "10.0.0.1/24"`,
			`plan.yaml:6: machines[0].nodeLabels: want fields (name: value), not "rack"`,
			`plan.yaml:7: machines[1]: want fields (name: value), not "hello"`,
		}},
		{"a field given twice", head + "machines:\n- name: a\n  name: b\n", []string{`plan.yaml:5: machines[0]: "name" is given twice, before in line 4`}},
		{"merge keys", head + "x: &x {role: worker}\nmachines:\n- <<: *x\n  name: a\n", []string{`plan.yaml:3: unknown field "x"`, "plan.yaml:5: machines[0]: << isn't supported"}},
		{"words that are none", head + "machines:\n- name: a\n  role: boss\n  network: {addressing: statik}\n", []string{
			`plan.yaml:5: machines[0].role: "boss" is none of them; there are controlplane, worker`,
			`plan.yaml:6: machines[0].network.addressing: "statik" is none of them; did you mean static?`,
		}},
		{"a fault in the second document, by its line in the file", head + "machines: [{name: a}]\n---\n" + head + "machines: [{nam: b}]\n", []string{`plan.yaml:7: machines[0]: unknown field "nam"; did you mean name?`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, faults := Read("plan.yaml", strings.NewReader(test.text))
			got := told(faults)
			if len(got) != len(test.want) {
				t.Fatalf("%d faults, want %d:\n%s", len(got), len(test.want), strings.Join(got, "\n"))
			}
			for n, want := range test.want {
				if !strings.HasPrefix(got[n], want) {
					t.Errorf("fault %d is\n%s\nwant it to begin with\n%s", n, got[n], want)
				}
				if faults[n].Code != cli.ExitUsage {
					t.Errorf("fault %d asks for exit status %d", n, faults[n].Code)
				}
			}
		})
	}
}

func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	if _, faults := Read("plan.yaml", strings.NewReader(strings.Repeat("#", MaxSize+1))); len(faults) != 1 || !strings.Contains(faults[0].What, "larger than") {
		t.Errorf("a file that is too large: %v", told(faults))
	}
	var bomb strings.Builder
	bomb.WriteString(head + "machines:\n- &m {name: a, disks: [&d {role: unused}")
	bomb.WriteString(strings.Repeat(", *d", 3000) + "]}\n" + strings.Repeat("- *m\n", 3000))
	_, faults := Read("plan.yaml", strings.NewReader(bomb.String()))
	if len(faults) != 1 || !strings.Contains(faults[0].What, "too large") {
		t.Errorf("aliases that blow up: %d faults", len(faults))
	}
}

// TestDocumentedPlanIsRead holds the page about racks to what is read.
func TestDocumentedPlanIsRead(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/approving-a-rack.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no example")
	}
	items := read(t, example)
	if len(items) != 3 || items[2].Network.Addressing != "dhcp" || items[2].Network.Gateway != "" || items[0].Network.Gateway != "10.0.0.1" || items[1].Role != "worker" {
		t.Errorf("the example is read as %+v", items)
	}
}

// TestFieldsAreTheMachines holds the document to its promise that `kubectl explain talosmachine.spec` explains it.
func TestFieldsAreTheMachines(t *testing.T) {
	t.Parallel()
	named := func(types ...any) map[string]bool {
		names := map[string]bool{}
		for _, one := range types {
			for name := range fieldsOf(reflect.New(reflect.TypeOf(one)).Elem()) {
				names[name] = true
			}
		}
		return names
	}
	for what, test := range map[string]struct {
		ours, theirs map[string]bool
		own          []string
	}{
		"machines":  {named(Entry{}), named(v1alpha1.TalosMachineSpec{}, v1alpha1.MachineIdentity{}, v1alpha1.MachineApproval{}), []string{"name", "macAddress", "installDisk"}},
		"network":   {named(Network{}), named(v1alpha1.MachineNetwork{}), nil},
		"interface": {named(Interface{}), named(v1alpha1.InterfaceMatch{}), []string{"name"}},
	} {
		for _, own := range test.own {
			delete(test.ours, own)
		}
		for name := range test.ours {
			if !test.theirs[name] {
				t.Errorf("%s: a TalosMachine has no field %q", what, name)
			}
		}
	}
}
