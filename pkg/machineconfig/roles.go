// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"encoding/json"
	"maps"
	"slices"
)

// controlPlaneFields are the fields that only mean something on control planes. A patch for machines of both roles gives
// them to the control planes only; workers would keep what they can't use, or refuse it. Source: Talos,
// pkg/machinery/config/types/v1alpha1 (ClusterConfig) and the documentation of each field.
var controlPlaneFields = map[string][][]string{
	"machine": {
		{"controlPlane"},
		{"features", "kubernetesTalosAPIAccess"},
	},
	"cluster": {
		{"adminKubeconfig"}, {"allowSchedulingOnControlPlanes"}, {"allowSchedulingOnMasters"}, {"apiServer"}, {"controllerManager"},
		{"coreDNS"}, {"etcd"}, {"extraManifestHeaders"}, {"extraManifests"}, {"inlineManifests"}, {"proxy"}, {"scheduler"},
	},
}

// withoutControlPlaneFields are the parts that workers get.
func (p PatchParts) withoutControlPlaneFields() PatchParts {
	return PatchParts{
		Machine:   without(p.Machine, controlPlaneFields["machine"]),
		Cluster:   without(p.Cluster, controlPlaneFields["cluster"]),
		Documents: p.Documents,
	}
}

// without is an object without some of its fields; nothing if nothing is left.
func without(raw []byte, paths [][]string) []byte {
	var fields map[string]any
	if len(raw) == 0 || json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	removed := false
	for _, path := range paths {
		removed = remove(fields, path) || removed
	}
	if !removed {
		return raw
	}
	if len(fields) == 0 {
		return nil
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return raw
	}
	return rest
}

// remove takes a field out of an object, and objects that are empty then.
func remove(fields map[string]any, path []string) bool {
	if len(path) == 1 {
		_, there := fields[path[0]]
		delete(fields, path[0])
		return there
	}
	below, ok := fields[path[0]].(map[string]any)
	if !ok || !remove(below, path[1:]) {
		return false
	}
	if len(below) == 0 {
		delete(fields, path[0])
	}
	return true
}

// onlyControlPlane are the fields of a section that are for control planes only, of those that it has.
func onlyControlPlane(section string, raw []byte) [][]string {
	var fields map[string]any
	if len(raw) == 0 || json.Unmarshal(raw, &fields) != nil {
		return nil
	}
	var found [][]string
	for _, path := range controlPlaneFields[section] {
		if remove(maps.Clone(fields), path) {
			found = append(found, path)
		}
	}
	slices.SortFunc(found, slices.Compare)
	return found
}
