// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func fleet() []v1alpha1.TalosMachine {
	return []v1alpha1.TalosMachine{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "4c4c4544-0051-3610-8052-b4c04f4c3132"},
			Spec: v1alpha1.TalosMachineSpec{
				Hostname: "cp-1",
				Identity: v1alpha1.MachineIdentity{
					UUID: "4c4c4544-0051-3610-8052-b4c04f4c3132", SerialNumber: "Q6RL12", MACAddresses: []string{"02:00:5e:00:53:01"},
				},
				Network: &v1alpha1.MachineNetwork{Addresses: []string{"10.0.0.11/24"}},
			},
			Status: v1alpha1.TalosMachineStatus{Addresses: []string{"10.0.0.61"}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "weak-0001"},
			Spec: v1alpha1.TalosMachineSpec{Identity: v1alpha1.MachineIdentity{
				UUID: "03000200-0400-0500-0006-000700080009", SerialNumber: "TWIN", MACAddresses: []string{"02:00:5e:00:53:02"},
			}},
			Status: v1alpha1.TalosMachineStatus{
				Hostname: "talos-abc", Addresses: []string{"10.0.0.62"},
				Inventory: &v1alpha1.MachineInventory{Links: []v1alpha1.LinkInventory{{Name: "eth0", MAC: "02:00:5e:00:53:99"}}},
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "weak-0002"},
			Spec: v1alpha1.TalosMachineSpec{Identity: v1alpha1.MachineIdentity{
				UUID: "03000200-0400-0500-0006-000700080009", SerialNumber: "TWIN",
			}},
			Status: v1alpha1.TalosMachineStatus{Addresses: []string{"fd00::62"}},
		},
	}
}

func TestMachineIsKnownBy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ by, query, want string }{
		{"its object's name", "weak-0001", "weak-0001"},
		{"its object's name in capitals", "4C4C4544-0051-3610-8052-B4C04F4C3132", "4c4c4544-0051-3610-8052-b4c04f4c3132"},
		{"what -o name prints", "talosmachine.ichor.maesh.dev/weak-0001", "weak-0001"},
		{"the short kind", "tm/weak-0001", "weak-0001"},
		{"the hostname it was given", "cp-1", "4c4c4544-0051-3610-8052-b4c04f4c3132"},
		{"the hostname it reports", "TALOS-abc", "weak-0001"},
		{"its serial number", "q6rl12", "4c4c4544-0051-3610-8052-b4c04f4c3132"},
		{"a MAC address", "02:00:5e:00:53:01", "4c4c4544-0051-3610-8052-b4c04f4c3132"},
		{"a MAC address with hyphens in capitals", "02-00-5E-00-53-02", "weak-0001"},
		{"the MAC address a link uses", "0200.5e00.5399", "weak-0001"},
		{"the address it was seen at", "10.0.0.62", "weak-0001"},
		{"the address it is to have", "10.0.0.11", "4c4c4544-0051-3610-8052-b4c04f4c3132"},
		{"an IPv6 address in another spelling", "fd00:0::0062", "weak-0002"},
	} {
		t.Run(test.by, func(t *testing.T) {
			t.Parallel()
			machine, err := Machine(fleet(), test.query)
			if err != nil {
				t.Fatalf("Machine(%q): %v", test.query, err)
			}
			if diff := cmp.Diff(test.want, machine.Name); diff != "" {
				t.Errorf("Machine(%q) (-want +got):\n%s", test.query, diff)
			}
		})
	}
}

func TestMachineIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, query string
		mentions    []string
	}{
		{"a serial number of two boards", "TWIN", []string{"weak-0001 (serial TWIN)", "weak-0002 (serial TWIN)"}},
		{"a junk UUID of two boards", "03000200-0400-0500-0006-000700080009", []string{"weak-0001", "weak-0002"}},
		{"a word nobody is known by", "cp-9", []string{"no machine \"cp-9\"", "none of 3"}},
		{"the beginning of a name", "weak-000", []string{"no machine"}},
		{"nothing", "", []string{"no machine"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			machine, err := Machine(fleet(), test.query)
			if err == nil {
				t.Fatalf("Machine(%q) = %s, want an error", test.query, machine.Name)
			}
			for _, want := range test.mentions {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Machine(%q) says %q, want it to mention %q", test.query, err, want)
				}
			}
		})
	}
}
