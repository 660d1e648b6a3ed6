// SPDX-License-Identifier: Apache-2.0

package cosi

import (
	"github.com/cosi-project/runtime/pkg/resource/meta"

	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubeaccess"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/security"
	"github.com/siderolabs/talos/pkg/machinery/resources/siderolink"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// resourceTypes are all types that a Talos 1.13 node registers (other versions: package profile), by package of the machinery's resources.
func resourceTypes() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&config.MachineConfig{}, &config.MachineType{},
		&block.Device{}, &block.DiscoveredVolume{}, &block.DiscoveryRefreshRequest{}, &block.DiscoveryRefreshStatus{}, &block.Disk{},
		&block.MountRequest{}, &block.MountStatus{}, &block.SwapStatus{}, &block.Symlink{}, &block.SystemDisk{}, &block.UserDiskConfigStatus{},
		&block.VolumeConfig{}, &block.VolumeLifecycle{}, &block.VolumeMountRequest{}, &block.VolumeMountStatus{}, &block.VolumeStatus{},
		&block.ZswapStatus{},
		&cluster.Affiliate{}, &cluster.Config{}, &cluster.Identity{}, &cluster.Info{}, &cluster.Member{},
		&cri.ImageCacheConfig{}, &cri.RegistriesConfig{}, &cri.SeccompProfile{},
		&etcd.Config{}, &etcd.Member{}, &etcd.PKIStatus{}, &etcd.Spec{},
		&files.EtcFileSpec{}, &files.EtcFileStatus{},
		&hardware.MemoryModule{}, &hardware.PCIDriverRebindConfig{}, &hardware.PCIDriverRebindStatus{}, &hardware.PCIDevice{}, &hardware.PCRStatus{},
		&hardware.Processor{}, &hardware.SystemInformation{},
		&k8s.AdmissionControlConfig{}, &k8s.APIServerConfig{}, &k8s.AuditPolicyConfig{}, &k8s.AuthorizationConfig{}, &k8s.ConfigStatus{},
		&k8s.ControllerManagerConfig{}, &k8s.Endpoint{}, &k8s.ExtraManifestsConfig{}, &k8s.KubeletConfig{}, &k8s.KubeletKubeconfig{},
		&k8s.KubeletLifecycle{}, &k8s.KubeletSpec{}, &k8s.KubePrismStatuses{}, &k8s.KubePrismConfig{}, &k8s.KubePrismEndpoints{}, &k8s.Manifest{},
		&k8s.ManifestStatus{}, &k8s.BootstrapManifestsConfig{}, &k8s.NodeAnnotationSpec{}, &k8s.NodeCordonedSpec{}, &k8s.NodeLabelSpec{},
		&k8s.NodeStatus{}, &k8s.NodeTaintSpec{}, &k8s.NodeIP{}, &k8s.NodeIPConfig{}, &k8s.Nodename{}, &k8s.SchedulerConfig{}, &k8s.SecretsStatus{},
		&k8s.StaticPod{}, &k8s.StaticPodServerStatus{}, &k8s.StaticPodStatus{},
		&kubeaccess.Config{},
		&kubespan.Config{}, &kubespan.Endpoint{}, &kubespan.Identity{}, &kubespan.PeerSpec{}, &kubespan.PeerStatus{},
		&network.AddressSpec{}, &network.AddressStatus{}, &network.DeviceConfigSpec{}, &network.DNSResolveCache{}, &network.DNSUpstream{},
		&network.EthernetSpec{}, &network.EthernetStatus{}, &network.HardwareAddr{}, &network.HostDNSConfig{}, &network.HostnameSpec{},
		&network.HostnameStatus{}, &network.LinkAliasSpec{}, &network.LinkRefresh{}, &network.LinkSpec{}, &network.LinkStatus{}, &network.NfTablesChain{},
		&network.NodeAddress{}, &network.NodeAddressFilter{}, &network.NodeAddressSortAlgorithm{}, &network.OperatorSpec{}, &network.PlatformConfig{},
		&network.ProbeSpec{}, &network.ProbeStatus{}, &network.ResolverSpec{}, &network.ResolverStatus{}, &network.RouteSpec{}, &network.RouteStatus{},
		&network.RoutingRuleSpec{}, &network.RoutingRuleStatus{}, &network.Status{}, &network.TimeServerSpec{}, &network.TimeServerStatus{},
		&perf.CPU{}, &perf.Memory{},
		&runtime.APIServiceConfig{}, &runtime.BootedEntry{}, &runtime.DevicesStatus{}, &runtime.Diagnostic{}, &runtime.Environment{},
		&runtime.EventSinkConfig{}, &runtime.ExtensionServiceConfig{}, &runtime.ExtensionServiceConfigStatus{}, &runtime.ExtensionStatus{},
		&runtime.KernelCmdline{}, &runtime.KernelModuleSpec{}, &runtime.KernelParamSpec{}, &runtime.KernelParamDefaultSpec{}, &runtime.KernelParamStatus{},
		&runtime.KmsgLogConfig{}, &runtime.LoadedKernelModule{}, &runtime.MachineResetSignal{}, &runtime.MachineStatus{},
		&runtime.MaintenanceServiceConfig{}, &runtime.MaintenanceServiceRequest{}, &runtime.MetaKey{}, &runtime.MetaLoaded{}, &runtime.MountStatus{},
		&runtime.OOMAction{}, &runtime.PlatformMetadata{}, &runtime.SBOMItem{}, &runtime.SecurityState{}, &runtime.ServicePID{},
		&runtime.UniqueMachineToken{}, &runtime.Version{}, &runtime.WatchdogTimerConfig{}, &runtime.WatchdogTimerStatus{},
		&secrets.API{}, &secrets.CertSAN{}, &secrets.EncryptionSalt{}, &secrets.Etcd{}, &secrets.EtcdRoot{}, &secrets.Kubelet{}, &secrets.Kubernetes{},
		&secrets.KubernetesDynamicCerts{}, &secrets.KubernetesRoot{}, &secrets.MaintenanceRoot{}, &secrets.OSRoot{}, &secrets.Trustd{},
		&security.ImageVerificationRule{}, &security.TUFTrustedRoot{},
		&siderolink.Config{}, &siderolink.Status{}, &siderolink.Tunnel{},
		&time.AdjtimeStatus{}, &time.Status{},
		&v1alpha1.AcquireConfigSpec{}, &v1alpha1.AcquireConfigStatus{}, &v1alpha1.Service{},
	}
}
