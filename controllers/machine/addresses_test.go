// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func TestTheLikeliestAddressesAreNotCutOff(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	m := &v1alpha1.TalosMachine{}
	m.Spec.Network = &v1alpha1.MachineNetwork{Addressing: v1alpha1.AddressingStatic}
	for i := range 8 {
		m.Spec.Network.Addresses = append(m.Spec.Network.Addresses, fmt.Sprintf("10.1.0.%d/24", i+1))
		m.Status.Addresses = append(m.Status.Addresses, fmt.Sprintf("10.2.0.%d", i+1))
	}
	m.Status.Provisioning = &v1alpha1.ProvisioningStatus{IntendedAt: &now, Address: "10.3.0.1"}
	var got []string
	for _, address := range candidates(m) {
		got = append(got, address.String())
	}
	want := []string{"10.2.0.1", "10.3.0.1", "10.2.0.8", "10.1.0.1", "10.1.0.2", "10.1.0.3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

func TestWhichAddressesAreAMachinesOwn(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.TalosMachine{}
	m.Spec.Network = &v1alpha1.MachineNetwork{Addresses: []string{"10.1.0.1/24"}}
	m.Status.Addresses = []string{"10.9.0.1"}
	m.Status.Provisioning = &v1alpha1.ProvisioningStatus{Address: "10.3.0.1"}
	m.Status.Inventory = &v1alpha1.MachineInventory{Links: []v1alpha1.LinkInventory{{Addresses: []string{"10.4.0.1/16"}}}}
	for text, want := range map[string]bool{
		"10.1.0.77": true, "10.3.0.1": true, "10.3.0.2": false, "10.4.7.7": true,
		"10.9.0.1": false, // anybody who answers there may have put it there
	} {
		if got := inOwnNetwork(m, netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
