// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/test/hollow/fleet"
)

// overlays are patches that change what the examples set, or what the base has: plain values, members, lists, whole
// documents. They go with every set.
var overlays = []string{
	`{machine: {sysctls: {net.core.somaxconn: "1024", vm.swappiness: "1"}, certSANs: [node.example.org, other.example.org]}}`,
	`{machine: {kubelet: {extraArgs: {max-pods: "110"}, extraMounts: [{destination: /var/mnt/y, type: bind, source: /var/mnt/y, options: [bind]}]}}}`,
	`{machine: {kernel: {modules: [{name: dm_crypt}]}, nodeLabels: {example.org/tier: compute}}}`,
	`{machine: {nodeTaints: {example.org/tier: compute:NoExecute}, udev: {rules: [SUBSYSTEM=="net"]}}}`,
	`{cluster: {discovery: {enabled: true}, apiServer: {certSANs: [b.example.org], extraArgs: {event-ttl: 1h}}}}`,
	`{cluster: {etcd: {extraArgs: {heartbeat-interval: "200"}}, scheduler: {extraArgs: {kube-api-burst: "200"}}}}`,
	`{documents: [{apiVersion: v1alpha1, kind: ResolverConfig, nameservers: [{address: 10.20.0.54}]}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: LinkConfig, name: enp9s0, mtu: 1500, addresses: [{address: 10.99.0.3/24}]}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: WatchdogTimerConfig, $patch: delete}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: RegistryMirrorConfig, name: ghcr.io, endpoints: [{url: "https://second.example.org"}]}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: ImageVerificationConfig, rules: [{image: docker.io/library/nginx, deny: true}]}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: StaticHostConfig, name: 10.20.0.9, hostnames: [third.example.org]}]}`,
}

// Sets of patches are drawn at random, of every kind of document and with every kind of target. Whatever order they were
// made in gives the same bytes; the same patches, used again and again, give the same bytes; and without any one of them
// there are the bytes that there are if it never was.
func TestRandomSetsOfPatches(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	pool := together(t)
	for i, text := range overlays {
		patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("overlay-%02d", i)}}
		if err := yaml.Unmarshal([]byte(text), &patch.Spec); err != nil {
			t.Fatal(err)
		}
		patch.Spec.Target.ClusterRef.Name = "prod"
		pool = append(pool, patch)
	}
	disk := fleet.Machine{TalosVersion: "v1.13.9", Disks: []fleet.Disk{{Device: "/dev/sda", Serial: "S1"}}}
	c := cluster("10.0.0.10")
	c.Spec.TalosVersion = "v1.13.9"
	const rounds = 30
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(*seed, uint64(round)))
			role := []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker}[round%2]
			h := of(t, c, role, disk)
			h.in.Machine.Labels = map[string]string{"rack": "1"}
			set := drawSet(random, pool, h.in.Machine, round < rounds/3)
			first, _ := h.with(t, set...)
			for range 2 {
				random.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
				if again, _ := h.with(t, set...); !bytes.Equal(first, again) {
					t.Fatal("another order of creation gives other bytes")
				}
			}
			in := h.in
			for _, patch := range machineconfig.PatchesFor(in.Machine, set) {
				made, err := machineconfig.Compile(patch, false, secret)
				if err != nil {
					t.Fatal(err)
				}
				in.Patches = append(in.Patches, made)
			}
			if again, err := machineconfig.Render(in); err != nil || !bytes.Equal(first, again) {
				t.Fatalf("the same patches give other bytes: %v", err)
			}
			all := in.Patches
			for range min(len(all), 4) {
				gone := random.IntN(len(all))
				in.Patches = slices.Delete(slices.Clone(all), gone, gone+1)
				removed, err := machineconfig.Render(in)
				if err != nil {
					t.Fatalf("without %s: %v", all[gone].Name, err)
				}
				never, _ := h.with(t, slices.DeleteFunc(slices.Clone(set), func(patch *v1alpha1.TalosConfigPatch) bool { return patch.Name == all[gone].Name })...)
				if !bytes.Equal(removed, never) {
					t.Errorf("%s is gone, and left something behind", all[gone].Name)
				}
			}
			in.Patches = all
			if again, err := machineconfig.Render(in); err != nil || !bytes.Equal(first, again) {
				t.Errorf("rendering without some changed those that are left: %v", err)
			}
		})
	}
}

// drawSet draws about half of the patches, or all, with targets that fit the machine or not, and priorities.
func drawSet(random *rand.Rand, pool []*v1alpha1.TalosConfigPatch, m *v1alpha1.TalosMachine, everything bool) []*v1alpha1.TalosConfigPatch {
	var set []*v1alpha1.TalosConfigPatch
	for _, patch := range pool {
		if !everything && random.IntN(2) == 0 {
			continue
		}
		patch = patch.DeepCopy()
		patch.Spec.Priority = ptr.To(int32(random.IntN(3)))
		target := &patch.Spec.Target
		switch random.IntN(6) {
		case 0:
			target.Role = m.Spec.Role
		case 1:
			target.MachineSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "1"}}
		case 2:
			target.MachineNames = []string{m.Name}
		case 3:
			target.MachineNames = []string{"another"}
		}
		set = append(set, patch)
	}
	return set
}
