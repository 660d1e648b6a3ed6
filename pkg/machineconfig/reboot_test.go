// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"strings"
	"testing"
)

// Each line is one of the contract's, section 4: what a node of 1.13 takes up at once, what it reboots for, and what 1.14
// accepts in silence and takes up later.
func TestWhichChangeNeedsAReboot(t *testing.T) {
	t.Parallel()
	const never, always, since114 = "never", "always", "since 1.14"
	cases := map[string]string{
		"v1alpha1 debug": never,
		"v1alpha1 cluster.apiServer.extraArgs.event-ttl":     never,
		"v1alpha1 cluster.acceptedCAs":                       never,
		"v1alpha1 cluster.etcd.extraArgs":                    since114,
		"v1alpha1 machine.ca":                                never,
		"v1alpha1 machine.acceptedCAs":                       never,
		"v1alpha1 machine.time.servers":                      never,
		"v1alpha1 machine.certSANs":                          never,
		"v1alpha1 machine.install.image":                     never,
		"v1alpha1 machine.network.interfaces":                never,
		"v1alpha1 machine.sysfs.x":                           never,
		"v1alpha1 machine.sysctls.x":                         never,
		"v1alpha1 machine.logging":                           never,
		"v1alpha1 machine.controlPlane.scheduler.disabled":   never,
		"v1alpha1 machine.kubelet.extraArgs.max-pods":        never,
		"v1alpha1 machine.kernel.modules":                    since114,
		"v1alpha1 machine.registries.mirrors":                never,
		"v1alpha1 machine.pods":                              never,
		"v1alpha1 machine.seccompProfiles":                   never,
		"v1alpha1 machine.nodeAnnotations.a":                 never,
		"v1alpha1 machine.nodeLabels.a":                      never,
		"v1alpha1 machine.nodeTaints.a":                      never,
		"v1alpha1 machine.features.kubernetesTalosAPIAccess": never,
		"v1alpha1 machine.features.kubePrism.port":           never,
		"v1alpha1 machine.features.hostDNS.enabled":          never,
		"v1alpha1 machine.features.imageCache.localEnabled":  never,
		"v1alpha1 machine.features.nodeAddressSortAlgorithm": never,
		"v1alpha1 machine.type":                              always,
		"v1alpha1 machine.token":                             always,
		"v1alpha1 machine.disks":                             always,
		"v1alpha1 machine.files":                             always,
		"v1alpha1 machine.env.HTTPS_PROXY":                   always,
		"v1alpha1 machine.systemDiskEncryption.state":        always,
		"v1alpha1 machine.udev.rules":                        always,
		"v1alpha1 machine.baseRuntimeSpecOverrides.a":        always,
		"v1alpha1 machine.features.rbac":                     always,
		"v1alpha1 machine.features.stableHostname":           always,
		"v1alpha1 machine.features.apidCheckExtKeyUsage":     always,
		"v1alpha1 machine.features.diskQuotaSupport":         always,
		"v1alpha1 machine.features":                          always,
		"v1alpha1 persist":                                   always,
		"EnvironmentConfig variables.A":                      since114,
		"EnvironmentConfig ":                                 since114,
		"VolumeConfig/EPHEMERAL encryption.provider":         since114,
		"UserVolumeConfig/data encryption":                   since114,
		"UserVolumeConfig/data provisioning.maxSize":         never,
		"LinkConfig/primary mtu":                             never,
		"TimeSyncConfig ":                                    never,
	}
	for place, when := range cases {
		document, path, _ := strings.Cut(place, " ")
		difference := Difference{Document: document}
		for name := range strings.SplitSeq(path, ".") {
			if name != "" {
				difference.Path = append(difference.Path, key(name))
			}
		}
		for version, want := range map[string]bool{
			"v1.12.11": when == always, "v1.13.9": when == always,
			"v1.14.0-rc.1": when != never, "v1.14.5": when != never, "v1.15.0": when != never, "": when != never,
		} {
			if got := len(NeedsReboot([]Difference{difference}, version)) > 0; got != want {
				t.Errorf("%s on %q: a reboot is needed: %t, want %t", place, version, got, want)
			}
		}
	}
}

func TestConflictsName(t *testing.T) {
	t.Parallel()
	in := inputs(t, testMachine(),
		testPatch(t, "a", `{machine: {sysctls: {x: "1", y: "1"}, certSANs: [a]}, documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {minSize: 1GiB}}]}`),
		testPatch(t, "b", `{machine: {sysctls: {x: "2", y: "1"}, certSANs: [b]}, documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {minSize: 2GiB}}]}`),
		testPatch(t, "c", `{machine: {sysctls: {x: "3"}}, cluster: {apiServer: {extraArgs: {event-ttl: 1h}}}}`),
		testPatch(t, "d", `{cluster: {apiServer: {extraArgs: {event-ttl: 2h}}}}`),
	)
	text := func(conflicts []Conflict) string {
		var all []string
		for _, c := range conflicts {
			all = append(all, c.Document+" "+c.Path+": "+c.Loser+"<"+c.Winner)
		}
		return strings.Join(all, "; ")
	}
	want := "v1alpha1 machine.sysctls.x: a<b; UserVolumeConfig/data provisioning.minSize: a<b; v1alpha1 machine.sysctls.x: b<c"
	if got := text(Conflicts(in.Patches, false)); got != want {
		t.Errorf("workers: got %s, want %s", got, want)
	}
	if got := text(Conflicts(in.Patches, true)); got != want+"; v1alpha1 cluster.apiServer.extraArgs.event-ttl: c<d" {
		t.Errorf("control planes: got %s", got)
	}
}
