// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// decidedDocuments are Talos documents for what approval decided, in a fixed order.
func decidedDocuments(m *v1alpha1.TalosMachine, inventory *v1alpha1.MachineInventory) ([]config.Document, error) {
	var documents []config.Document
	if m.Spec.Hostname != "" {
		hostname := network.NewHostnameConfigV1Alpha1()
		hostname.ConfigHostname = m.Spec.Hostname
		documents = append(documents, hostname)
	}
	addressing, err := networkDocuments(m.Spec.Network, inventory)
	if err != nil {
		return nil, err
	}
	volumes, err := volumeDocuments(m.Spec.Disks)
	if err != nil {
		return nil, err
	}
	return append(append(documents, addressing...), volumes...), nil
}
