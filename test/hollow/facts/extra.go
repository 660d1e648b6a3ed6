// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"github.com/cosi-project/runtime/pkg/resource"

	"maesh.dev/ichor/test/hollow/cosi"
)

// factoryURL is where the Image Factory's schematics are looked up.
const factoryURL = "https://factory.talos.dev"

// extraValues are the fields of the resources that only some versions have, by id; nil if there is no such resource on the
// machine.
func extraValues(v View) map[string]map[string]string {
	values := map[string]map[string]string{"boot-id": {"bootID": v.BootID}}
	if v.Schematic != "" {
		values["image-factory-schematic"] = map[string]string{"schematicId": v.Schematic, "apiUrl": factoryURL}
	}
	return values
}

func extraGroups(v View) []Group {
	if v.Profile == nil {
		return nil
	}
	var groups []Group
	values := extraValues(v)
	for _, kind := range v.Profile.ExtraTypes {
		if kind.ID == "" {
			continue
		}
		groups = append(groups, group("runtime.VersionController", kind.Namespace, kind.Type,
			when(values[kind.ID] != nil, func() resource.Resource { return cosi.NewExtra(kind, values[kind.ID]) })...))
	}
	return groups
}
