// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Fields of the v1alpha1 document whose change 1.13 takes up without a reboot, by their Go names (talos-contract.md §4).
// Whatever is not listed needs a reboot; other documents never do.
var (
	immediateRoot    = []string{"ConfigDebug", "ClusterConfig"}
	immediateMachine = []string{
		"MachineCA", "MachineAcceptedCAs", "MachineTime", "MachineCertSANs", "MachineInstall", "MachineNetwork", "MachineSysfs", "MachineSysctls",
		"MachineLogging", "MachineControlPlane", "MachineKubelet", "MachineKernel", "MachineRegistries", "MachinePods", "MachineSeccompProfiles",
		"MachineNodeAnnotations", "MachineNodeLabels", "MachineNodeTaints",
	}
	immediateFeatures = []string{
		"KubernetesTalosAPIAccessConfig", "KubePrismSupport", "HostDNSSupport", "ImageCacheSupport", "FeatureNodeAddressSortAlgorithm",
	}
)

// needsReboot tells why a configuration can't be taken up without a reboot; nil means that it can.
func needsReboot(active, next config.Provider) error {
	if active == nil {
		return errors.New("no current config")
	}
	current := active.RawV1Alpha1()
	if current == nil {
		return errors.New("current config is not v1alpha1")
	}
	if next.RawV1Alpha1() == nil {
		return errors.New("new config is not v1alpha1")
	}
	rest := next.RawV1Alpha1().DeepCopy()
	takeOver(rest, current, immediateRoot)
	if rest.MachineConfig != nil && current.MachineConfig != nil {
		takeOver(rest.MachineConfig, current.MachineConfig, immediateMachine)
		if rest.MachineConfig.MachineFeatures != nil && current.MachineConfig.MachineFeatures != nil {
			takeOver(rest.MachineConfig.MachineFeatures, current.MachineConfig.MachineFeatures, immediateFeatures)
		}
	}
	if reflect.DeepEqual(current, rest) {
		return nil
	}
	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(current), container.NewV1Alpha1(rest))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}
	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// takeOver makes the named fields of the one equal to those of the other.
func takeOver[T v1alpha1.Config | v1alpha1.MachineConfig | v1alpha1.FeaturesConfig](to, from *T, fields []string) {
	for _, name := range fields {
		reflect.ValueOf(to).Elem().FieldByName(name).Set(reflect.ValueOf(from).Elem().FieldByName(name))
	}
}
