// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// testPatch reads the spec of a patch for machines of the cluster prod.
func testPatch(t *testing.T, name, spec string) *v1alpha1.TalosConfigPatch {
	t.Helper()
	var fields any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	if err := json.Unmarshal(text, &patch.Spec); err != nil {
		t.Fatal(err)
	}
	patch.Spec.Target.ClusterRef.Name = "prod"
	return patch
}

// testSecrets hold one value for each name and key.
func testSecrets(ref v1alpha1.SecretKeyReference) (string, error) {
	if ref.Name == "absent" {
		return "", fmt.Errorf("there is no Secret %s in ichor-system", ref.Name)
	}
	return "s3cr3t-" + ref.Name + "-" + ref.Key, nil
}

func inputs(t *testing.T, m *v1alpha1.TalosMachine, patches ...*v1alpha1.TalosConfigPatch) Inputs {
	t.Helper()
	cluster := testCluster()
	m.Spec.ClusterRef.Name = cluster.Name
	in := Inputs{Bundle: testBundle(t), Cluster: cluster, Machine: m, Facts: testFacts(cluster)}
	for _, patch := range PatchesFor(m, patches) {
		compiled, err := Compile(patch, false, testSecrets)
		if err != nil {
			t.Fatal(err)
		}
		in.Patches = append(in.Patches, compiled)
	}
	return in
}

func mustRender(t *testing.T, in Inputs) []byte {
	t.Helper()
	text, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// values are a configuration's fields by document and path.
func values(t *testing.T, text []byte) map[string]string {
	t.Helper()
	trees, err := rawTree(text)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for document, value := range trees {
		leaves(value, nil, func(path Path, value any) { all[document+" "+path.String()] = shown(value) })
	}
	return all
}

func TestWhatIsMergedLaterHasTheLastWord(t *testing.T) {
	t.Parallel()
	patch := func(name, target string, priority int32, value string) *v1alpha1.TalosConfigPatch {
		p := testPatch(t, name, fmt.Sprintf(`{target: %s, machine: {sysctls: {vm.swappiness: %q}}}`, target, value))
		if priority >= 0 {
			p.Spec.Priority = ptr.To(priority)
		}
		return p
	}
	m := testMachine(func(m *v1alpha1.TalosMachine) { m.Labels = map[string]string{"rack": "1"} })
	everyone, role, selector, named := `{}`, `{role: worker}`, `{machineSelector: {matchLabels: {rack: "1"}}}`, `{machineNames: [`+m.Name+`]}`
	cases := map[string]struct {
		patches []*v1alpha1.TalosConfigPatch
		want    string
	}{
		"the name decides among equals":                   {[]*v1alpha1.TalosConfigPatch{patch("b", everyone, -1, "2"), patch("a", everyone, -1, "1")}, "2"},
		"a high priority beats a late name":               {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, 200, "1"), patch("b", everyone, -1, "2")}, "1"},
		"100 is the priority of whoever names none":       {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, -1, "1"), patch("b", everyone, 99, "2")}, "1"},
		"a role beats the cluster":                        {[]*v1alpha1.TalosConfigPatch{patch("a", role, 0, "1"), patch("b", everyone, 1000000, "2")}, "1"},
		"a selector beats a role":                         {[]*v1alpha1.TalosConfigPatch{patch("a", selector, 0, "1"), patch("b", role, 1000000, "2")}, "1"},
		"a machine beats a selector":                      {[]*v1alpha1.TalosConfigPatch{patch("a", named, 0, "1"), patch("b", selector, 1000000, "2")}, "1"},
		"a disabled one says nothing":                     {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, -1, "1"), disabled(patch("b", everyone, -1, "2"))}, "1"},
		"one for another role says nothing":               {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, -1, "1"), patch("b", `{role: controlplane}`, -1, "2")}, "1"},
		"one for other labels says nothing":               {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, -1, "1"), patch("b", `{machineSelector: {matchLabels: {rack: "2"}}}`, -1, "2")}, "1"},
		"one for another machine says nothing":            {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, -1, "1"), patch("b", `{machineNames: [other]}`, -1, "2")}, "1"},
		"everything that is given must fit":               {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, -1, "1"), patch("b", `{role: controlplane, machineNames: [`+m.Name+`]}`, -1, "2")}, "1"},
		"one that is being deleted says nothing any more": {[]*v1alpha1.TalosConfigPatch{patch("a", everyone, -1, "1"), deleting(patch("b", everyone, -1, "2"))}, "1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := mustRender(t, inputs(t, m.DeepCopy(), c.patches...))
			if got := values(t, text)[`v1alpha1 machine.sysctls["vm.swappiness"]`]; got != c.want {
				t.Errorf("the machine gets %q, want %q", got, c.want)
			}
		})
	}
}

func disabled(patch *v1alpha1.TalosConfigPatch) *v1alpha1.TalosConfigPatch {
	patch.Spec.Disabled = true
	return patch
}

func deleting(patch *v1alpha1.TalosConfigPatch) *v1alpha1.TalosConfigPatch {
	patch.DeletionTimestamp = ptr.To(metav1.Now())
	return patch
}

// pool are patches that go together in any number. They append to lists, merge into documents that others make or that
// the base has, replace and delete.
var pool = []string{
	`{machine: {sysctls: {net.core.somaxconn: "4096", vm.max_map_count: "262144"}}}`,
	`{machine: {sysctls: {net.core.somaxconn: "1024"}}}`,
	`{machine: {certSANs: [a.example, b.example]}}`,
	`{machine: {certSANs: [a.example]}, cluster: {apiServer: {certSANs: [api.example]}}}`,
	`{machine: {kernel: {modules: [{name: nbd}, {name: dm_crypt, parameters: [a=1]}]}}}`,
	`{machine: {kubelet: {extraArgs: {max-pods: "250"}, nodeIP: {validSubnets: [10.0.0.0/8]}}}}`,
	`{machine: {kubelet: {extraMounts: [{destination: /var/mnt/x, type: bind, source: /var/mnt/x, options: [bind, rw]}]}}}`,
	`{machine: {nodeLabels: {tier: storage}, nodeTaints: {tier: storage:NoSchedule}}}`,
	`{cluster: {apiServer: {extraArgs: {event-ttl: 2h}}, etcd: {extraArgs: {quota-backend-bytes: "8589934592"}}}}`,
	`{cluster: {apiServer: {admissionControl: [{name: PodSecurity, $patch: delete}]}}, target: {role: controlplane}}`,
	`{cluster: {discovery: {enabled: false}}}`,
	`{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {diskSelector: {match: "disk.transport == 'nvme'"}, minSize: 100GiB}}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, filesystem: {type: ext4}, provisioning: {maxSize: 200GiB, minSize: 50GiB, diskSelector: {match: "disk.transport == 'sata'"}}}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: TimeSyncConfig, ntp: {servers: [time.example]}}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: ResolverConfig, nameservers: [{address: 1.1.1.1}]}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: WatchdogTimerConfig, device: /dev/watchdog0, timeout: 1m}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: RegistryMirrorConfig, name: docker.io, endpoints: [{url: "https://mirror.example"}]}]}`,
	`{machine: {env: {HTTPS_PROXY: "http://proxy:3128"}}, secretValues: [{path: /machine/env/PROXY_PASSWORD, secretKeyRef: {name: proxy, key: password}}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: RegistryAuthConfig, name: ghcr.io, username: me}], secretValues: [{path: /documents/RegistryAuthConfig/ghcr.io/password, secretKeyRef: {name: registry, key: password}}]}`,
}

func TestPatchesInAnyOrderOfCreationGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	const rounds = 25
	for round := range rounds {
		seed := [2]uint64{20261130, uint64(round)}
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed[0], seed[1]))
			var patches []*v1alpha1.TalosConfigPatch
			for i, spec := range pool {
				if random.IntN(2) == 0 {
					patch := testPatch(t, fmt.Sprintf("p%02d", i), spec)
					patch.Spec.Priority = ptr.To(int32(random.IntN(3)))
					patches = append(patches, patch)
				}
			}
			role := []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker}[round%2]
			m := testMachine(func(m *v1alpha1.TalosMachine) { m.Spec.Role = role })
			first := mustRender(t, inputs(t, m, patches...))
			for range 3 {
				random.Shuffle(len(patches), func(i, j int) { patches[i], patches[j] = patches[j], patches[i] })
				if again := mustRender(t, inputs(t, m, patches...)); !bytes.Equal(first, again) {
					t.Fatalf("another order of the same patches renders something else (-first +again):\n%s", cmp.Diff(values(t, first), values(t, again)))
				}
			}
			// The same compiled patches, rendered again and for others in between: nothing of one rendering is left in the next.
			in := inputs(t, m, patches...)
			for range 3 {
				if again := mustRender(t, in); !bytes.Equal(first, again) {
					t.Fatalf("the same patches render something else the next time (-first +again):\n%s", cmp.Diff(values(t, first), values(t, again)))
				}
			}
			if len(patches) == 0 {
				return
			}
			removed := random.IntN(len(patches))
			rest := append(append([]*v1alpha1.TalosConfigPatch(nil), patches[:removed]...), patches[removed+1:]...)
			never := mustRender(t, inputs(t, m, rest...))
			gone := mustRender(t, inputs(t, m, append(rest, disabled(patches[removed].DeepCopy()))...))
			if !bytes.Equal(never, gone) {
				t.Fatalf("a patch that is gone left something behind:\n%s", cmp.Diff(values(t, never), values(t, gone)))
			}
		})
	}
}

func TestWhatAMachineCantHave(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		specs  []string
		reason []string
	}{
		"deletes a field that isn't there": {
			[]string{`{machine: {sysctls: {net.core.somaxconn: {$patch: delete}}}}`},
			[]string{"patch p0", "spec.machine.sysctls.net.core.somaxconn", "deletes what isn't there"},
		},
		"a Secret that is missing": {
			[]string{`{machine: {env: {A: b}}, secretValues: [{path: /machine/env/X, secretKeyRef: {name: absent, key: k}}]}`},
			[]string{"patch p0", "spec.secretValues[path=/machine/env/X]", "there is no Secret absent in ichor-system"},
		},
		"documents that don't go together": {
			[]string{`{machine: {sysctls: {a.b: "1"}}}`, `{documents: [{apiVersion: v1alpha1, kind: DHCPv4Config, name: x}, {apiVersion: v1alpha1, kind: UserVolumeConfig, name: data}]}`},
			[]string{"patch p1", "would be refused by Talos"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := func() error {
				cluster, m := testCluster(), testMachine()
				in := Inputs{Bundle: testBundle(t), Cluster: cluster, Machine: m, Facts: testFacts(cluster)}
				for i, spec := range c.specs {
					compiled, err := Compile(testPatch(t, fmt.Sprintf("p%d", i), spec), false, testSecrets)
					if err != nil {
						return err
					}
					in.Patches = append(in.Patches, compiled)
				}
				_, err := Render(in)
				return err
			}()
			var fault *PatchError
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want an error that names the patch", err)
			}
			for _, word := range c.reason {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("got %q, want it to say %q", err, word)
				}
			}
		})
	}
}

// Talos quotes what it finds wrong; a value of a Secret must not get into a condition that way.
func TestAFaultyValueOfASecretIsNotQuoted(t *testing.T) {
	t.Parallel()
	_, err := Render(inputs(t, testMachine(), testPatch(t, "p",
		`{machine: {sysctls: {a.b: "1"}}, secretValues: [{path: /machine/nodeLabels/tier, secretKeyRef: {name: label, key: "not a label!"}}]}`)))
	if err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("got %v", err)
	}
	var fault *PatchError
	if !errors.As(err, &fault) || fault.Patch != "p" {
		t.Errorf("got %v, want an error that names the patch", err)
	}
}

func TestDeletingADocumentThatIsntThereIsAWarning(t *testing.T) {
	t.Parallel()
	in := inputs(t, testMachine(), testPatch(t, "tidy", `{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: old, $patch: delete}]}`))
	text := mustRender(t, in)
	if bytes.Contains(text, []byte("$patch")) || bytes.Contains(text, []byte("UserVolumeConfig")) {
		t.Errorf("the deletion is left in the configuration")
	}
	if want := []string{"patch tidy deletes document UserVolumeConfig/old, which isn't there"}; !cmp.Equal(Warnings(in), want) {
		t.Errorf("got the warnings %q, want %q", Warnings(in), want)
	}
}

// What only control planes have goes to control planes only, when a patch is for both.
func TestAPatchForAllGivesWorkersWhatWorkersHave(t *testing.T) {
	t.Parallel()
	spec := `{machine: {sysctls: {vm.swappiness: "1"}, features: {kubernetesTalosAPIAccess: {enabled: true, allowedRoles: ["os:reader"], allowedKubernetesNamespaces: [x]}}}, cluster: {apiServer: {extraArgs: {event-ttl: 2h}}, discovery: {enabled: false}}}`
	worker := values(t, mustRender(t, inputs(t, testMachine(), testPatch(t, "p", spec))))
	controlPlane := values(t, mustRender(t, inputs(t, testMachine(func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleControlPlane }), testPatch(t, "p", spec))))
	for path, onWorkers := range map[string]bool{
		`v1alpha1 machine.sysctls["vm.swappiness"]`:                  true,
		`v1alpha1 cluster.discovery.enabled`:                         true,
		`v1alpha1 cluster.apiServer.extraArgs.event-ttl`:             false,
		`v1alpha1 machine.features.kubernetesTalosAPIAccess.enabled`: false,
	} {
		if _, there := controlPlane[path]; !there {
			t.Errorf("a control plane lacks %s", path)
		}
		if _, there := worker[path]; there != onWorkers {
			t.Errorf("a worker has %s: %t, want %t", path, there, onWorkers)
		}
	}
}

// What was approved has the last word, also over lists, which Talos' merge would append to.
func TestApprovalHasTheLastWord(t *testing.T) {
	t.Parallel()
	m := testMachine(func(m *v1alpha1.TalosMachine) {
		m.Spec.NodeLabels = map[string]string{"rack": "7"}
		m.Spec.Disks = append(m.Spec.Disks, v1alpha1.MachineDisk{Match: v1alpha1.DiskMatch{Serial: "S2"}, Role: v1alpha1.DiskUserVolume, Name: "data"})
		m.Spec.Network = &v1alpha1.MachineNetwork{
			Interface: v1alpha1.InterfaceMatch{MAC: "02:00:5e:00:53:01"}, Addressing: v1alpha1.AddressingStatic,
			Addresses: []string{"10.0.0.11/24"}, Gateway: "10.0.0.1", Nameservers: []string{"10.0.0.1"},
		}
	})
	got := values(t, mustRender(t, inputs(t, m,
		testPatch(t, "labels", `{machine: {nodeLabels: {rack: "1", tier: x}}}`),
		testPatch(t, "dns", `{documents: [{apiVersion: v1alpha1, kind: ResolverConfig, nameservers: [{address: 1.1.1.1}], searchDomains: {domains: [a.example]}}]}`),
		testPatch(t, "mtu", `{documents: [{apiVersion: v1alpha1, kind: LinkConfig, name: primary, mtu: 9000}]}`),
		testPatch(t, "volume", `{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, filesystem: {type: ext4}, provisioning: {diskSelector: {match: "system_disk"}}}]}`),
	)))
	for path, want := range map[string]string{
		"v1alpha1 machine.nodeLabels.rack":                      "7",
		"v1alpha1 machine.nodeLabels.tier":                      "x",
		"ResolverConfig nameservers[0].address":                 "10.0.0.1",
		"ResolverConfig nameservers[1].address":                 "",
		"ResolverConfig searchDomains.domains[0]":               "a.example",
		"LinkConfig/primary mtu":                                "9000",
		"LinkConfig/primary addresses[0].address":               "10.0.0.11/24",
		"UserVolumeConfig/data filesystem.type":                 "ext4",
		"UserVolumeConfig/data provisioning.diskSelector.match": `disk.serial == "S2"`,
		"HostnameConfig hostname":                               "worker-1",
		"v1alpha1 machine.install.diskSelector.serial":          "S1",
	} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
}

func TestWhoSetWhat(t *testing.T) {
	t.Parallel()
	origins, err := Provenance(inputs(t, testMachine(),
		testPatch(t, "a", `{machine: {sysctls: {vm.swappiness: "1", vm.max_map_count: "2"}, certSANs: [a.example]}}`),
		testPatch(t, "b", `{machine: {sysctls: {vm.swappiness: "3"}, certSANs: [b.example]}}`),
		testPatch(t, "c", `{machine: {sysctls: {vm.max_map_count: "2"}}}`),
	))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Origin{}
	for _, origin := range origins {
		got[origin.Document+" "+origin.Path] = origin
	}
	for path, want := range map[string]Origin{
		`v1alpha1 machine.type`:                        {Kind: ProvenanceBase},
		`v1alpha1 machine.sysctls["vm.swappiness"]`:    {Kind: ProvenancePatch, Patch: "b", Overrode: []string{"a"}},
		`v1alpha1 machine.sysctls["vm.max_map_count"]`: {Kind: ProvenancePatch, Patch: "a"},
		`v1alpha1 machine.certSANs[1]`:                 {Kind: ProvenancePatch, Patch: "a"},
		`v1alpha1 machine.certSANs[2]`:                 {Kind: ProvenancePatch, Patch: "b"},
		`v1alpha1 machine.install.diskSelector.serial`: {Kind: ProvenanceApproval},
		`HostnameConfig hostname`:                      {Kind: ProvenanceApproval},
	} {
		document, at, _ := strings.Cut(path, " ")
		want.Document, want.Path = document, at
		if diff := cmp.Diff(want, got[path]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}
