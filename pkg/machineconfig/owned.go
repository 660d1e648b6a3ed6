// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// owner says who decides on a field, instead of patches.
type owner struct {
	// document that the field is in; a kind alone means all documents of it.
	document string
	// path of the field; everything below it is meant too. None: the whole document.
	path []string
	// by says what to change instead.
	by string
}

const (
	byApproval  = "is decided when the machine is approved"
	byBundle    = "comes from the cluster's secrets bundle"
	byCluster   = "is set by the TalosCluster's "
	byOperation = "is changed by an operation of type "
)

// owners are the fields that patches leave alone.
var owners = slices.Concat(
	owned(MainDocument, byApproval+": spec.role of the TalosMachine", "machine.type"),
	owned(MainDocument, byApproval+": spec.disks of the TalosMachine, the disk with the role system", "machine.install.disk", "machine.install.diskSelector"),
	owned(MainDocument, byApproval+": spec.hostname of the TalosMachine", "machine.network.hostname"),
	owned("HostnameConfig", byApproval+": spec.hostname of the TalosMachine"),
	owned("VolumeConfig/EPHEMERAL", byApproval+": spec.disks of the TalosMachine, the disk with the role ephemeral", "provisioning.diskSelector"),
	owned("LinkAliasConfig/"+primaryAlias, byApproval+": spec.network.interface of the TalosMachine"),
	owned("LinkConfig/"+primaryAlias, byApproval+": spec.network of the TalosMachine", "addresses", "routes"),

	owned(MainDocument, byBundle, "machine.token", "machine.ca", "cluster.id", "cluster.secret", "cluster.token", "cluster.ca", "cluster.aggregatorCA",
		"cluster.serviceAccount", "cluster.aescbcEncryptionSecret", "cluster.secretboxEncryptionSecret", "cluster.etcd.ca"),
	owned(MainDocument, byOperation+"rotateCA", "machine.acceptedCAs", "cluster.acceptedCAs"),

	owned(MainDocument, byCluster+"name", "cluster.clusterName"),
	owned(MainDocument, byCluster+"spec.controlPlane.endpoint", "cluster.controlPlane"),
	owned(MainDocument, byCluster+"spec.network", "cluster.network.dnsDomain", "cluster.network.podSubnets", "cluster.network.serviceSubnets"),

	owned(MainDocument, byOperation+"talosUpgrade, and its registry by the TalosCluster's spec.install", "machine.install.image"),
	owned(MainDocument, byOperation+"kubernetesUpgrade", "machine.kubelet.image", "cluster.apiServer.image", "cluster.controllerManager.image",
		"cluster.scheduler.image", "cluster.proxy.image"),
)

// ciliumOwners are further ones where the TalosCluster has Cilium.
var ciliumOwners = owned(MainDocument, byCluster+"spec.cni.cilium", "cluster.network.cni", "cluster.proxy.disabled")

func owned(document, by string, paths ...string) []owner {
	if len(paths) == 0 {
		return []owner{{document: document, by: by}}
	}
	var owners []owner
	for _, path := range paths {
		owners = append(owners, owner{document: document, path: strings.Split(path, "."), by: by})
	}
	return owners
}

// CheckOwned finds the fields of a patch that something else decides on: who the machine is and what it was approved for,
// the cluster's secrets and endpoints, and versions. Each error names who does. The fields that are filled from Secrets
// count too.
func CheckOwned(parts PatchParts, cilium bool, path *field.Path) field.ErrorList {
	rules := owners
	if cilium {
		rules = append(slices.Clip(rules), ciliumOwners...)
	}
	var errs field.ErrorList
	for _, part := range parts.values() {
		for _, rule := range rules {
			if kind, _, _ := strings.Cut(part.document, "/"); rule.document != part.document && rule.document != kind {
				continue
			}
			if at, there := reach(part.value, rule.path); there {
				errs = addOnce(errs, field.Forbidden(part.at(path, at), rule.by))
			}
		}
	}
	for i, text := range parts.SecretPaths {
		leads, err := parsePointer(text)
		if err != nil {
			continue // is judged elsewhere
		}
		for _, rule := range rules {
			if rule.document == leads.document() && under(leads.keys(), rule.path) {
				errs = addOnce(errs, field.Forbidden(path.Child("secretValues").Index(i).Child("path"), rule.by))
			}
		}
	}
	return errs
}

// partValue is one part of a patch as plain values.
type partValue struct {
	document string
	// index in spec.documents; negative for the sections.
	index int
	value map[string]any
}

// values are the parts; machine and cluster together are the main document.
func (p PatchParts) values() []partValue {
	main := map[string]any{}
	for name, raw := range map[string][]byte{"machine": p.Machine, "cluster": p.Cluster} {
		var fields map[string]any
		if json.Unmarshal(raw, &fields) == nil {
			main[name] = fields
		}
	}
	values := []partValue{{document: MainDocument, index: -1, value: main}}
	for i, raw := range p.Documents {
		var fields map[string]any
		if json.Unmarshal(raw, &fields) != nil {
			continue
		}
		kind, _ := fields["kind"].(string)
		name, _ := fields["name"].(string)
		values = append(values, partValue{document: documentName(kind, name), index: i, value: fields})
	}
	return values
}

// at is the field of the patch that a path in the part is.
func (p partValue) at(spec *field.Path, keys []string) *field.Path {
	if p.index >= 0 {
		spec = spec.Child("documents").Index(p.index)
	}
	for _, key := range keys {
		spec = spec.Child(key)
	}
	return spec
}

// reach follows keys into an object. A deletion on the way reaches what lies below it.
func reach(fields map[string]any, keys []string) (at []string, there bool) {
	for i, key := range keys {
		if fields["$patch"] != nil {
			return keys[:i], true
		}
		value, ok := fields[key]
		if !ok {
			return nil, false
		}
		if i == len(keys)-1 {
			return keys, true
		}
		if fields, ok = value.(map[string]any); !ok {
			return nil, false
		}
	}
	return nil, true
}

// CheckRole finds what only control planes have in a patch for workers.
func CheckRole(parts PatchParts, worker bool, path *field.Path) field.ErrorList {
	if !worker {
		return nil
	}
	var errs field.ErrorList
	for _, section := range []struct {
		name string
		raw  []byte
	}{{"machine", parts.Machine}, {"cluster", parts.Cluster}} {
		for _, keys := range onlyControlPlane(section.name, section.raw) {
			at := path.Child(section.name)
			for _, key := range keys {
				at = at.Child(key)
			}
			errs = append(errs, field.Forbidden(at, "only means something on control planes, and spec.target.role is worker"))
		}
	}
	return errs
}

// addOnce keeps one error for each field.
func addOnce(errs field.ErrorList, fault *field.Error) field.ErrorList {
	if slices.ContainsFunc(errs, func(has *field.Error) bool { return has.Field == fault.Field }) {
		return errs
	}
	return append(errs, fault)
}

// under tells whether keys are, or lead below, others.
func under(keys, other []string) bool {
	return len(keys) >= len(other) && slices.Equal(keys[:len(other)], other)
}
