// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

func configGroups(v View) []Group {
	return []Group{
		group("config.MachineConfigController", configres.NamespaceName, configres.MachineConfigType, machineConfigs(v)...),
		group("config.MachineTypeController", configres.NamespaceName, configres.MachineTypeType, machineType(v)),
		group("cluster.NodeIdentityController", cluster.NamespaceName, cluster.IdentityType, identity(v)...),
		group("cluster.InfoController", cluster.NamespaceName, cluster.InfoType, clusterInfo(v)...),
		group("secrets.RootOSController", secrets.NamespaceName, secrets.OSRootType, osRoot(v)...),
		group("secrets.MaintenanceRootController", secrets.NamespaceName, secrets.MaintenanceRootType, maintenanceRoot(v)...),
		group("v1alpha1.AcquireConfigSpecController", v1alpha1.NamespaceName, v1alpha1.AcquireConfigSpecType,
			when(v.Maintenance, func() resource.Resource { return v1alpha1.NewAcquireConfigSpec() })...),
		group("config.AcquireController", v1alpha1.NamespaceName, v1alpha1.AcquireConfigStatusType,
			when(!v.Maintenance, func() resource.Resource { return v1alpha1.NewAcquireConfigStatus() })...),
	}
}

// machineConfigs are the active configuration and, once something was persisted, that one.
func machineConfigs(v View) []resource.Resource {
	var list []resource.Resource
	if v.Active != nil {
		list = append(list, configres.NewMachineConfigWithID(v.Active, configres.ActiveID))
	}
	if v.Persistent != nil {
		list = append(list, configres.NewMachineConfigWithID(v.Persistent, configres.PersistentID))
	}
	return list
}

// Type is the machine's type; unknown in maintenance.
func (v View) Type() machine.Type {
	if v.Maintenance || v.Active == nil || v.Active.RawV1Alpha1() == nil {
		return machine.TypeUnknown
	}
	return v.Active.Machine().Type()
}

func machineType(v View) resource.Resource {
	r := configres.NewMachineType()
	r.SetMachineType(v.Type())
	return r
}

func identity(v View) []resource.Resource {
	return when(v.NodeID != "", func() resource.Resource {
		r := cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity)
		r.TypedSpec().NodeID = v.NodeID
		return r
	})
}

func clusterInfo(v View) []resource.Resource {
	return when(v.Type() != machine.TypeUnknown && v.Active.Cluster() != nil, func() resource.Resource {
		r := cluster.NewInfo()
		r.TypedSpec().ClusterID, r.TypedSpec().ClusterName = v.Active.Cluster().ID(), v.Active.Cluster().Name()
		return r
	})
}

// OSRoot is the Talos CA as a configuration gives it: the issuing CA comes last among the accepted ones.
func OSRoot(cfg config.Provider) *secrets.OSRootSpec {
	s := &secrets.OSRootSpec{Token: cfg.Machine().Security().Token(), IssuingCA: cfg.Machine().Security().IssuingCA()}
	s.AcceptedCAs = append(s.AcceptedCAs, cfg.Machine().Security().AcceptedCAs()...)
	if s.IssuingCA != nil {
		s.AcceptedCAs = append(s.AcceptedCAs, &x509.PEMEncodedCertificate{Crt: s.IssuingCA.Crt})
		if len(s.IssuingCA.Key) == 0 {
			s.IssuingCA = nil
		}
	}
	for _, san := range cfg.Machine().Security().CertSANs() {
		if a, err := netip.ParseAddr(san); err == nil {
			s.CertSANIPs = append(s.CertSANIPs, a)
		} else {
			s.CertSANDNSNames = append(s.CertSANDNSNames, san)
		}
	}
	return s
}

func osRoot(v View) []resource.Resource {
	return when(v.Type() != machine.TypeUnknown, func() resource.Resource {
		r := secrets.NewOSRoot(secrets.OSRootID)
		*r.TypedSpec() = *OSRoot(v.Active)
		return r
	})
}

func maintenanceRoot(v View) []resource.Resource {
	return when(v.MaintenanceCA != nil, func() resource.Resource {
		r := secrets.NewMaintenanceRoot(secrets.MaintenanceRootID)
		r.TypedSpec().CA = v.MaintenanceCA
		return r
	})
}
