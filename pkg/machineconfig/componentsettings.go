// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// ComponentSetting is something that a configuration gives a component of Kubernetes beyond what Talos does.
type ComponentSetting struct {
	// Component is kube-apiserver, kube-controller-manager, kube-scheduler or kubelet.
	Component string
	// Exactly one of Flag, Gate and Plugin is given: a flag of the command line, a feature gate, a plugin of the admission
	// control.
	Flag, Gate, Plugin string
	// Where people find it: the patch, if it is one, and the field.
	Where string

	path string
}

// ComponentSettings are those of a machine that wanted lets through. Who set them is found out for these alone, as that takes
// several times as long.
func ComponentSettings(cluster *v1alpha1.TalosCluster, m *v1alpha1.TalosMachine, patches []*v1alpha1.TalosConfigPatch, wanted func(ComponentSetting) bool) ([]ComponentSetting, error) {
	bundle, err := placeholderBundle()
	if err != nil {
		return nil, err
	}
	in := previewInputs(bundle, cluster, m)
	for _, patch := range PatchesFor(m, patches) {
		made, err := Compile(patch, cluster.Spec.CNI.Cilium != nil, placeholderValue)
		if err != nil {
			return nil, err
		}
		in.Patches = append(in.Patches, made)
	}
	rendering, err := render(in, nil)
	if err != nil {
		return nil, err
	}
	settings := slices.DeleteFunc(componentSettings(rendering.provider.RawV1Alpha1()), func(s ComponentSetting) bool { return !wanted(s) })
	if len(settings) == 0 {
		return nil, nil
	}
	origins, err := Provenance(in)
	if err != nil {
		return nil, err
	}
	for i := range settings {
		settings[i].find(origins)
	}
	return settings, nil
}

// find looks up who set it.
func (s *ComponentSetting) find(origins []Origin) {
	s.Where = s.path
	for _, origin := range origins {
		if origin.Document != MainDocument || origin.Path != s.path && !strings.HasPrefix(origin.Path, s.path+"[") {
			continue
		}
		if origin.Kind == ProvenancePatch {
			s.Where = fmt.Sprintf("TalosConfigPatch %s, %s", origin.Patch, origin.Path)
			return
		}
	}
}

// componentSettings reads what the main document gives the components.
func componentSettings(v1 *talosv1alpha1.Config) []ComponentSetting {
	var all []ComponentSetting
	if cluster := v1.ClusterConfig; cluster != nil {
		if c := cluster.APIServerConfig; c != nil {
			all = append(all, argsOf("kube-apiserver", "cluster.apiServer", c.ExtraArgsConfig)...)
			for i, plugin := range c.AdmissionControlConfig {
				all = append(all, ComponentSetting{Component: "kube-apiserver", Plugin: plugin.Name(), path: fmt.Sprintf("cluster.apiServer.admissionControl[%d].name", i)})
			}
		}
		if c := cluster.ControllerManagerConfig; c != nil {
			all = append(all, argsOf("kube-controller-manager", "cluster.controllerManager", c.ExtraArgsConfig)...)
		}
		if c := cluster.SchedulerConfig; c != nil {
			all = append(all, argsOf("kube-scheduler", "cluster.scheduler", c.ExtraArgsConfig)...)
		}
	}
	if machine := v1.MachineConfig; machine != nil && machine.MachineKubelet != nil {
		kubelet := machine.MachineKubelet
		all = append(all, argsOf("kubelet", "machine.kubelet", kubelet.KubeletExtraArgs)...)
		if gates, ok := kubelet.ExtraConfig()["featureGates"].(map[string]any); ok {
			for _, gate := range slices.Sorted(maps.Keys(gates)) {
				all = append(all, ComponentSetting{Component: "kubelet", Gate: gate, path: Path{key("machine"), key("kubelet"), key("extraConfig"), key("featureGates"), key(gate)}.String()})
			}
		}
	}
	return all
}

// argsOf are the settings of a command line: each flag, and what some flags list.
func argsOf(component, at string, args talosv1alpha1.Args) []ComponentSetting {
	var all []ComponentSetting
	values := args.ToMap()
	for _, flag := range slices.Sorted(maps.Keys(values)) {
		path := at + "." + Path{key("extraArgs"), key(flag)}.String()
		all = append(all, ComponentSetting{Component: component, Flag: flag, path: path})
		for _, word := range strings.FieldsFunc(strings.Join(values[flag], ","), func(r rune) bool { return r == ',' }) {
			name, _, _ := strings.Cut(strings.TrimSpace(word), "=")
			switch flag {
			case "feature-gates":
				all = append(all, ComponentSetting{Component: component, Gate: name, path: path})
			case "enable-admission-plugins", "disable-admission-plugins":
				all = append(all, ComponentSetting{Component: component, Plugin: name, path: path})
			}
		}
	}
	return all
}

// Name is what it is called, whatever it is.
func (s ComponentSetting) Name() string { return cmp.Or(s.Flag, s.Gate, s.Plugin) }
