// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
)

const (
	// Component is the server's name among the components whose versions and features are set together.
	Component = "ichor"
	// Version of the server's API behaviour. Features of Ichor's own are introduced against it.
	Version = "0.1"
)

// componentGlobals returns the registry of versions and feature gates. Ichor's features have a gate of their own; the
// library's are Kubernetes' own, and emulating an Ichor version emulates the Kubernetes version it was built with.
// The registry is the process's own, so servers that are made at the same time share it.
var componentGlobals = sync.OnceValues(func() (basecompatibility.ComponentGlobalsRegistry, error) {
	registry := compatibility.DefaultComponentGlobalsRegistry
	gate := featuregate.NewVersionedFeatureGate(version.MustParse(Version))
	if err := registry.Register(Component, basecompatibility.NewEffectiveVersionFromString(Version, Version, Version), gate); err != nil {
		return nil, err
	}
	kube := registry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
	return registry, registry.SetVersionMapping(Component, basecompatibility.DefaultKubeComponent,
		func(*version.Version) *version.Version { return kube.BinaryVersion() })
})
