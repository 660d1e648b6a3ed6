// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// rack are approved machines that differ in everything that machines of a rack differ in: the first three are control
// planes, every fourth has labels of its own, every fifth a disk for a user volume, every sixth a static address.
func rack(count int) []*v1alpha1.TalosMachine {
	var machines []*v1alpha1.TalosMachine
	for i := range count {
		m := testMachine()
		m.Name = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		m.Labels = map[string]string{"shelf": fmt.Sprint(i % 3)}
		m.Spec.ClusterRef.Name, m.Spec.ApprovalState, m.Spec.Origin = "prod", v1alpha1.ApprovalApproved, v1alpha1.MachineDiscovered
		m.Spec.Hostname = fmt.Sprintf("machine-%d", i)
		if i < 3 {
			m.Spec.Role = v1alpha1.RoleControlPlane
		}
		serial := fmt.Sprintf("S%d", i)
		m.Spec.Disks[0].Match.Serial = serial
		mac := fmt.Sprintf("02:00:5e:%02x:%02x:01", i>>8, i&255)
		m.Status.TalosVersion = "v1.14.5"
		m.Status.Inventory = &v1alpha1.MachineInventory{
			Disks: []v1alpha1.DiskInventory{{Device: "/dev/nvme0n1", Serial: serial}, {Device: "/dev/sda", Serial: "D" + serial}},
			Links: []v1alpha1.LinkInventory{{Name: "enp1s0", PermanentMAC: mac}},
		}
		m.Status.Inventory.UnifiedKernelImage = i%7 != 6
		if i%4 == 3 {
			m.Spec.NodeLabels = map[string]string{"example.com/slot": fmt.Sprint(i / 4 % 2)}
		}
		if i%5 == 4 {
			m.Spec.Disks = append(m.Spec.Disks, v1alpha1.MachineDisk{Match: v1alpha1.DiskMatch{Serial: "D" + serial}, Role: v1alpha1.DiskUserVolume, Name: "data"})
		}
		if i%6 == 5 {
			m.Spec.Network = &v1alpha1.MachineNetwork{
				Interface: v1alpha1.InterfaceMatch{MAC: mac}, Addressing: v1alpha1.AddressingStatic,
				Addresses: []string{fmt.Sprintf("10.1.%d.%d/16", i>>8, i&255)}, Gateway: "10.1.255.254", Nameservers: []string{"10.1.255.253"},
			}
		}
		machines = append(machines, m)
	}
	return machines
}

func foresee(t *testing.T, machines []*v1alpha1.TalosMachine, stored []*v1alpha1.TalosConfigPatch, change PatchChange) *Foresight {
	t.Helper()
	cluster := testCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Hardening.KernelLockdown = v1alpha1.KernelLockdownIntegrity })
	foresight, err := Foresee(t.Context(), cluster, machines, stored, change)
	if err != nil {
		t.Fatal(err)
	}
	return foresight
}

func TestForesee(t *testing.T) {
	t.Parallel()
	type seen struct{ Matched, Changed, NeedReboot, Refused, Classes, NotReached int }
	for _, test := range []struct {
		name          string
		before, after string
		others        []string
		machines      func([]*v1alpha1.TalosMachine)
		want          seen
		refused       string
		warning       string
	}{
		{name: "a new patch for all, live", after: `{machine: {sysctls: {vm.swappiness: "1"}}}`, want: seen{Matched: 24, Changed: 24, Classes: 1}},
		{name: "for workers", after: `{target: {role: worker}, machine: {sysctls: {vm.swappiness: "1"}}}`, want: seen{Matched: 21, Changed: 21, Classes: 1}},
		{name: "by labels of machines", after: `{target: {machineSelector: {matchLabels: {shelf: "1"}}}, machine: {sysctls: {vm.swappiness: "1"}}}`, want: seen{Matched: 8, Changed: 8, Classes: 1}},
		{name: "one that waits for a reboot", after: `{machine: {udev: {rules: [a]}}}`, want: seen{Matched: 24, Changed: 24, NeedReboot: 24, Classes: 1}},
		{name: "what only control planes have", after: `{cluster: {apiServer: {extraArgs: {event-ttl: 2h}}}}`, want: seen{Matched: 24, Changed: 3, Classes: 1}},
		{name: "labels, which some machines have of their own", after: `{machine: {nodeLabels: {example.com/slot: "1"}}}`, want: seen{Matched: 24, Changed: 18, Classes: 2}},
		{name: "a volume that some machines have", after: `{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {minSize: 2GiB}, filesystem: {type: ext4}}]}`,
			want: seen{Matched: 24, Changed: 4, Refused: 20, Classes: 1}, refused: "disk selector"},
		{name: "a patch that is deleted", before: `{machine: {sysctls: {vm.swappiness: "1"}}}`, want: seen{Matched: 24, Changed: 24, Classes: 1}},
		{name: "one that is disabled", before: `{machine: {sysctls: {vm.swappiness: "1"}}}`, after: `{disabled: true, machine: {sysctls: {vm.swappiness: "1"}}}`, want: seen{Matched: 24, Changed: 24, Classes: 1}},
		{name: "a new priority that changes who wins", before: `{priority: 1, machine: {sysctls: {vm.swappiness: "1"}}}`, after: `{priority: 200, machine: {sysctls: {vm.swappiness: "1"}}}`,
			others: []string{`{machine: {sysctls: {vm.swappiness: "2"}}}`}, want: seen{Matched: 24, Changed: 24, Classes: 1}},
		{name: "what another patch overrides", after: `{priority: 1, machine: {sysctls: {vm.swappiness: "1"}}}`, others: []string{`{machine: {sysctls: {vm.swappiness: "2"}}}`}, want: seen{Matched: 24}},
		{name: "a target that moves on", before: `{target: {role: worker}, machine: {sysctls: {vm.swappiness: "1"}}}`, after: `{target: {role: controlplane}, machine: {sysctls: {vm.swappiness: "1"}}}`,
			want: seen{Matched: 3, Changed: 24, Classes: 2}},
		{name: "what deletes what isn't there", after: `{machine: {sysctls: {vm.absent: {$patch: delete}}}}`, want: seen{Matched: 24, Refused: 24}, refused: "spec.machine.sysctls.vm.absent deletes what isn't there"},
		{name: "what another patch needs goes", before: `{priority: 1, machine: {sysctls: {vm.swappiness: "1"}}}`, others: []string{`{machine: {sysctls: {vm.swappiness: {$patch: delete}}}}`},
			want: seen{Matched: 24, Refused: 24}, refused: "other-0 spec.machine.sysctls.vm.swappiness"},
		{name: "what mends it", after: `{priority: 1, machine: {sysctls: {vm.swappiness: "1"}}}`, others: []string{`{machine: {sysctls: {vm.swappiness: {$patch: delete}}}}`},
			want: seen{Matched: 24, Changed: 24, Classes: 1}},
		{name: "a document that isn't there", after: `{documents: [{apiVersion: v1alpha1, kind: WatchdogTimerConfig, $patch: delete}], machine: {sysctls: {vm.swappiness: "1"}}}`,
			want: seen{Matched: 24, Changed: 24, Classes: 1}, warning: "deletes document WatchdogTimerConfig, which isn't there"},
		{name: "machines that nobody approved, that go, or that keep their own", after: `{machine: {sysctls: {vm.swappiness: "1"}}}`, machines: func(machines []*v1alpha1.TalosMachine) {
			machines[0].Spec.ApprovalState = v1alpha1.ApprovalPending
			machines[1].DeletionTimestamp = &metav1.Time{}
			machines[2].Spec.Origin = v1alpha1.MachineAdopted
			machines[3].Spec.ClusterRef.Name = "other"
		}, want: seen{Matched: 21, Changed: 20, Classes: 1, NotReached: 1}},
		{name: "a machine whose disk is gone", after: `{machine: {sysctls: {vm.swappiness: "1"}}}`, machines: func(machines []*v1alpha1.TalosMachine) {
			machines[5].Status.Inventory.Disks = nil
		}, want: seen{Matched: 24, Changed: 23, Classes: 1}, warning: "1 of the machines can't be given anything with or without the patch, for instance 00000000-0000-4000-8000-000000000005"},
		{name: "machines of an older Talos, which take up at once what newer ones don't", after: `{cluster: {etcd: {extraArgs: {quota-backend-bytes: "1"}}}}`, machines: func(machines []*v1alpha1.TalosMachine) {
			machines[1].Status.TalosVersion = "v1.13.9"
		}, want: seen{Matched: 24, Changed: 3, NeedReboot: 2, Classes: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			machines := rack(24)
			if test.machines != nil {
				test.machines(machines)
			}
			var stored []*v1alpha1.TalosConfigPatch
			for i, other := range test.others {
				stored = append(stored, testPatch(t, fmt.Sprintf("other-%d", i), other))
			}
			var change PatchChange
			if test.before != "" {
				change.Before = testPatch(t, "tuning", test.before)
				stored = append(stored, change.Before)
			}
			if test.after != "" {
				change.After = testPatch(t, "tuning", test.after)
			}
			got := foresee(t, machines, stored, change)
			changed, reboot := got.Changed()
			if diff := cmp.Diff(test.want, seen{got.Matched, changed, reboot, got.Refused(), len(got.Changes), got.NotReached}); diff != "" {
				t.Errorf("(-want +got):\n%s\nrefusals %v", diff, got.Refusals)
			}
			if text := fmt.Sprint(got.Refusals); !strings.Contains(text, test.refused) {
				t.Errorf("refusals %s don't say %q", text, test.refused)
			}
			if text := strings.Join(got.Warnings, "\n"); !strings.Contains(text, test.warning) || test.warning == "" && text != "" {
				t.Errorf("warnings are %q, want %q", text, test.warning)
			}
		})
	}
}

// Each machine gets what it would get if it was the only one, whatever class it was put into.
func TestForeseeingManyMachinesIsForeseeingEach(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 7)) //nolint:gosec // the same run each time
	for round := range 12 {
		var patches []*v1alpha1.TalosConfigPatch
		for i := range 3 {
			patches = append(patches, testPatch(t, fmt.Sprintf("p%d", i), pieces[random.IntN(len(pieces))]))
		}
		change := PatchChange{Before: patches[0], After: testPatch(t, "p0", pieces[random.IntN(len(pieces))])}
		switch random.IntN(4) {
		case 0:
			change.Before, patches = nil, patches[1:]
		case 1:
			change.After = nil
		}
		machines := rack(20)
		together, each := map[string]string{}, map[string]string{}
		collect(t, foresee(t, machines, patches, change), together)
		for _, m := range machines {
			collect(t, foresee(t, []*v1alpha1.TalosMachine{m}, patches, change), each)
		}
		if diff := cmp.Diff(each, together); diff != "" {
			t.Fatalf("round %d, %+v:\n(-each by itself +together)\n%s", round, change, diff)
		}
	}
}

// pieces are what patches of the random rounds are made of.
var pieces = []string{
	`{machine: {sysctls: {vm.swappiness: "1"}}}`,
	`{machine: {sysctls: {vm.swappiness: "2", vm.overcommit_memory: "1"}}, priority: 7}`,
	`{machine: {nodeLabels: {example.com/slot: "1", example.com/zone: a}}}`,
	`{machine: {nodeLabels: {example.com/slot: {$patch: delete}}}}`,
	`{target: {role: worker}, machine: {kubelet: {extraArgs: {v: "4"}}}}`,
	`{target: {machineSelector: {matchLabels: {shelf: "1"}}}, machine: {udev: {rules: [a]}}}`,
	`{documents: [{apiVersion: v1alpha1, kind: UserVolumeConfig, name: data, provisioning: {minSize: 2GiB}, filesystem: {type: ext4}}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: ResolverConfig, searchDomains: {domains: [example.com]}}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: ResolverConfig, $patch: delete}]}`,
	`{documents: [{apiVersion: v1alpha1, kind: TimeSyncConfig, ntp: {servers: [a.example.com]}}], cluster: {apiServer: {extraArgs: {event-ttl: 2h}}}}`,
	`{machine: {time: {servers: [b.example.com]}}}`,
	`{machine: {install: {extraKernelArgs: [quiet]}}}`,
}

// collect writes down what each machine gets.
func collect(t *testing.T, foresight *Foresight, into map[string]string) {
	t.Helper()
	for _, change := range foresight.Changes {
		for _, m := range change.Machines {
			into[m] = fmt.Sprintf("%s %q late %q", change.Unknown, change.Differences, change.Late)
		}
	}
	for _, refusal := range foresight.Refusals {
		for _, m := range refusal.Machines {
			into[m] += fmt.Sprintf("refused: %s %s %s", refusal.Patch, refusal.Path, refusal.Reason)
		}
	}
}

func TestForeseeingShowsNoSecret(t *testing.T) {
	t.Parallel()
	after := testPatch(t, "proxy", `{machine: {env: {http_proxy: http://a}}, secretValues: [{path: /machine/env/PASSWORD, secretKeyRef: {name: proxy, key: password}}]}`)
	got := foresee(t, rack(3), nil, PatchChange{After: after})
	if len(got.Changes) != 1 {
		t.Fatalf("%d changes", len(got.Changes))
	}
	before, text, err := got.Changes[0].Texts()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := placeholderBundle()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{SecretPlaceholder, bundle.Cluster.Secret, bundle.Secrets.BootstrapToken, bundle.TrustdInfo.Token} {
		if bytes.Contains(text, []byte(secret)) || bytes.Contains(before, []byte(secret)) {
			t.Errorf("the texts show %s", secret)
		}
	}
	if !strings.Contains(fmt.Sprint(got.Changes[0].Differences), secretShown) || !bytes.Contains(text, []byte("http_proxy: http://a")) {
		t.Errorf("differences %v, text\n%s", got.Changes[0].Differences, text)
	}
}

func TestForeseeingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := Foresee(ended, testCluster(), rack(5), nil, PatchChange{After: testPatch(t, "tuning", `{machine: {sysctls: {a: "1"}}}`)})
	if err != nil || got.NotComputed != 5 || len(got.Changes) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestForeseeingLeavesWhatItWasGiven(t *testing.T) {
	t.Parallel()
	machines, patch := rack(6), testPatch(t, "tuning", `{machine: {sysctls: {a: "1"}}}`)
	var was []*v1alpha1.TalosMachine
	for _, m := range machines {
		was = append(was, m.DeepCopy())
	}
	foresee(t, machines, []*v1alpha1.TalosConfigPatch{patch}, PatchChange{Before: patch})
	if diff := cmp.Diff(was, machines); diff != "" {
		t.Errorf("machines changed:\n%s", diff)
	}
}

func BenchmarkForeseeThousandMachines(b *testing.B) {
	machines := rack(1000)
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "tuning"}}
	patch.Spec.Target.ClusterRef.Name = "prod"
	for name, section := range map[string]string{"sysctl": `{"sysctls":{"vm.swappiness":"1"}}`, "labels": `{"nodeLabels":{"a":"b"}}`} {
		b.Run(name, func(b *testing.B) {
			patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(section)}
			for b.Loop() {
				got, err := Foresee(b.Context(), testCluster(), machines, nil, PatchChange{After: patch})
				if changed, _ := got.Changed(); err != nil || changed != 1000 {
					b.Fatal(changed, err)
				}
			}
		})
	}
}
