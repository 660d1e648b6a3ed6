// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"slices"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/merge"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

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

// decide puts what approval decided on top, where it has the last word.
func decide(provider coreconfig.Provider, m *v1alpha1.TalosMachine, system v1alpha1.DiskMatch, decided []config.Document) ([]config.Document, error) {
	provider, err := provider.PatchV1Alpha1(func(v1 *talosv1alpha1.Config) error {
		v1.MachineConfig.MachineInstall.InstallDisk = ""
		v1.MachineConfig.MachineInstall.InstallDiskSelector = &talosv1alpha1.InstallDiskSelector{Serial: system.Serial, WWID: system.WWID}
		labels := map[string]string{}
		for key, value := range v1.MachineConfig.MachineNodeLabels {
			labels[key] = value
		}
		for key, value := range m.Spec.NodeLabels {
			labels[key] = value
		}
		v1.MachineConfig.MachineNodeLabels = labels
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write what approval decided into the configuration: %w", err)
	}
	documents := slices.Clone(provider.Documents())
	for _, mine := range decided {
		name := DocumentName(mine)
		at := slices.IndexFunc(documents, func(document config.Document) bool { return DocumentName(document) == name })
		if at < 0 {
			documents = append(documents, mine)
			continue
		}
		replaceLists(documents[at], mine)
		if err := merge.Merge(documents[at], mine); err != nil {
			return nil, fmt.Errorf("write what approval decided into document %s: %s", name, withoutValues(err))
		}
	}
	return documents, nil
}

// replaceLists takes out of a document what Talos' merge would keep beside what approval decided: lists, which are
// appended to, and an automatic hostname beside a chosen one, which Talos refuses.
func replaceLists(document, decided config.Document) {
	switch document := document.(type) {
	case *network.HostnameConfigV1Alpha1:
		*document = *network.NewHostnameConfigV1Alpha1()
	case *network.LinkConfigV1Alpha1:
		replaceAddresses(&document.CommonLinkConfig, decided.(*network.LinkConfigV1Alpha1).CommonLinkConfig)
	case *network.VLANConfigV1Alpha1:
		replaceAddresses(&document.CommonLinkConfig, decided.(*network.VLANConfigV1Alpha1).CommonLinkConfig)
	case *network.ResolverConfigV1Alpha1:
		document.ResolverNameservers = nil
	case *network.LinkAliasConfigV1Alpha1:
		document.Selector = network.LinkSelector{}
	case *block.VolumeConfigV1Alpha1:
		document.ProvisioningSpec.DiskSelectorSpec = block.DiskSelector{}
	case *block.UserVolumeConfigV1Alpha1:
		document.ProvisioningSpec.DiskSelectorSpec = block.DiskSelector{}
	}
}

func replaceAddresses(link *network.CommonLinkConfig, decided network.CommonLinkConfig) {
	if len(decided.LinkAddresses) > 0 {
		link.LinkAddresses, link.LinkRoutes = nil, nil
	}
}
