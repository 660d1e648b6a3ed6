// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"maesh.dev/ichor/test/hollow/profile"
)

// parseConfig reads a configuration as the running version of Talos does: documents and keys that it doesn't know are
// errors.
func (b *boot) parseConfig(data []byte) (config.Provider, error) {
	if err := checkDocuments(b.profile, data); err != nil {
		return nil, err
	}
	return configloader.NewFromBytes(data)
}

// checkDocuments refuses what the machinery of 1.13 reads and this version doesn't, in the decoder's words
// (Talos: pkg/machinery/config/configloader/internal/decoder). What can't be read at all is left to the loader.
func checkDocuments(version *profile.Profile, data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return nil //nolint:nilerr // the loader says it better
		}
		for _, root := range document.Content {
			if err := checkDocument(version, root); err != nil {
				return err
			}
		}
	}
}

func checkDocument(version *profile.Profile, root *yaml.Node) error {
	if root.Kind != yaml.MappingNode {
		return nil
	}
	values := map[string]string{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		values[root.Content[i].Value] = root.Content[i+1].Value
	}
	kind := values["kind"]
	fault := func(why error) error {
		return fmt.Errorf("error decoding document %s/%s/%s (line %d): %w", values["apiVersion"], cmp.Or(kind, "v1alpha1"), values["name"], root.Line, why)
	}
	if slices.Contains(version.LaterKinds, kind) {
		return fault(errors.New("a hollow machine can't take documents of this kind, a real one does"))
	}
	if slices.Contains(version.MissingKinds, kind) {
		return fault(fmt.Errorf("%q %q: not registered", kind, values["apiVersion"]))
	}
	for _, key := range version.MissingKeys[kind] {
		if _, there := values[key]; there {
			return fault(fmt.Errorf("unknown keys found during decoding:\n%s: %s", key, values[key]))
		}
	}
	return nil
}

// checkKubernetes refuses images of a Kubernetes that this version doesn't run (Talos: Config.RuntimeValidate).
func (b *boot) checkKubernetes(cfg config.Provider) error {
	var faults []error
	for _, image := range kubernetesImages(cfg) {
		if err := b.profile.RunsKubernetes(image.reference, b.slot.Version); err != nil {
			faults = append(faults, fmt.Errorf("v1alpha1.Config: %s image is not valid: %w", image.name, err))
		}
	}
	return errors.Join(faults...)
}

type namedImage struct{ name, reference string }

// kubernetesImages are those whose version is judged.
func kubernetesImages(cfg config.Provider) []namedImage {
	if cfg.RawV1Alpha1() == nil || cfg.Machine() == nil {
		return nil
	}
	images := []namedImage{{"kubelet", cfg.Machine().Kubelet().Image()}}
	if cfg.Cluster() != nil && cfg.Machine().Type().IsControlPlane() {
		images = append(images,
			namedImage{"kube-apiserver", cfg.Cluster().APIServer().Image()},
			namedImage{"kube-controller-manager", cfg.Cluster().ControllerManager().Image()},
			namedImage{"kube-scheduler", cfg.Cluster().Scheduler().Image()})
	}
	return images
}

// withKnownKubernetes is the configuration with images of a Kubernetes that the machinery of 1.13 accepts: what it judges
// by its own range is judged by checkKubernetes.
func withKnownKubernetes(cfg config.Provider) (config.Provider, error) {
	if cfg.RawV1Alpha1() == nil {
		return cfg, nil
	}
	known := ":v" + constants.DefaultKubernetesVersion
	return cfg.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		if c.MachineConfig != nil {
			if c.MachineConfig.MachineKubelet == nil {
				c.MachineConfig.MachineKubelet = &v1alpha1.KubeletConfig{}
			}
			c.MachineConfig.MachineKubelet.KubeletImage = constants.KubeletImage + known
		}
		if c.ClusterConfig == nil {
			return nil
		}
		if p := c.ClusterConfig.APIServerConfig; p != nil {
			p.ContainerImage = constants.KubernetesAPIServerImage + known
		}
		if p := c.ClusterConfig.ControllerManagerConfig; p != nil {
			p.ContainerImage = constants.KubernetesControllerManagerImage + known
		}
		if p := c.ClusterConfig.SchedulerConfig; p != nil {
			p.ContainerImage = constants.KubernetesSchedulerImage + known
		}
		return nil
	})
}
