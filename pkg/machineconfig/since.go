// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// addition is something of Talos' configuration that older versions don't know. They decode strictly, so that they refuse
// the whole configuration for it.
type addition struct {
	// document that it is in; a kind alone means all documents of it.
	document string
	// path of the field, where * stands for any key; everything below it is meant too. None: the whole document.
	path []string
	// list is set where only a list is new, and a single text isn't.
	list bool
}

// additions are what the first version came with, of those versions of Talos that can be managed and whose successor the
// machinery knows. Source: the documents and fields of Talos' pkg/machinery/config/types in release-1.13, without those of
// release-1.12.
var additions = map[*config.VersionContract][]addition{
	config.TalosVersion1_13: slices.Concat(
		added("BlackholeRouteConfig"), added("EnvironmentConfig"), added("ExternalVolumeConfig"), added("ImageVerificationConfig"),
		added("KubeSpanConfig"), added("RoutingRuleConfig"), added("TCPProbeConfig"), added("VRFConfig"),

		added("ExistingVolumeConfig", "mount.secure", "mount.disableAccessTime"),
		added("OOMConfig", "strictCgroupClassOrdering"),
		added("UserVolumeConfig", "mount"),
		added("VolumeConfig", "mount"),
		added(MainDocument, "cluster.network.cni.flannel.kubeNetworkPoliciesEnabled"),
		lists(MainDocument, "machine.kubelet.extraArgs.*", "cluster.apiServer.extraArgs.*", "cluster.controllerManager.extraArgs.*",
			"cluster.scheduler.extraArgs.*", "cluster.proxy.extraArgs.*", "cluster.etcd.extraArgs.*"),
	),
}

func added(document string, paths ...string) []addition {
	if len(paths) == 0 {
		return []addition{{document: document}}
	}
	var all []addition
	for _, path := range paths {
		all = append(all, addition{document: document, path: strings.Split(path, ".")})
	}
	return all
}

func lists(document string, paths ...string) []addition {
	all := added(document, paths...)
	for i := range all {
		all[i].list = true
	}
	return all
}

// CheckVersion finds what a cluster's version of Talos, as in v1.12.4, doesn't know yet. Versions that can't be read, and
// those newer than the machinery, know everything.
func CheckVersion(parts PatchParts, talos string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, unknown := range unknownTo(parts, path) {
		if unknown.to(talos) {
			unknown.fault.Detail += fmt.Sprintf(", and spec.talosVersion of the cluster is %s: upgrade Talos first", talos)
			errs = append(errs, unknown.fault)
		}
	}
	return errs
}

// unknown is something of a patch that needs a version of Talos.
type unknown struct {
	since *config.VersionContract
	fault *field.Error
}

// to tells whether a version of Talos is too old for it.
func (u unknown) to(talos string) bool {
	if talos == "" {
		return false
	}
	version, err := config.ParseContractFromVersion(talos)
	return err == nil && u.since.Greater(version)
}

// unknownTo finds what some version that can be managed doesn't know.
func unknownTo(parts PatchParts, path *field.Path) []unknown {
	var all []unknown
	for since, news := range additions {
		for _, part := range parts.values() {
			kind, _, _ := strings.Cut(part.document, "/")
			for _, addition := range news {
				if addition.document != kind {
					continue
				}
				for _, at := range addition.find(part.value, nil) {
					what := "this field"
					switch {
					case len(addition.path) == 0:
						what, at = kind, []string{"kind"}
					case addition.list:
						what = "a list here"
					}
					all = append(all, unknown{since: since, fault: field.Forbidden(part.at(path, at), fmt.Sprintf("Talos knows %s only since %s", what, since))})
				}
			}
		}
	}
	return all
}

// find gives the places of a part where the addition is.
func (a addition) find(value any, at []string) [][]string {
	depth := len(at)
	if depth == len(a.path) {
		if fields, ok := value.(map[string]any); ok && fields["$patch"] != nil {
			return nil // what is taken out is sent to nobody
		}
		if _, isList := value.([]any); a.list && !isList {
			return nil
		}
		return [][]string{at}
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	keys := []string{a.path[depth]}
	if keys[0] == "*" {
		keys = slices.Sorted(maps.Keys(fields))
	}
	var found [][]string
	for _, key := range keys {
		if below, there := fields[key]; there {
			found = append(found, a.find(below, append(slices.Clone(at), key))...)
		}
	}
	return found
}
