// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
)

// The disks of the foreign machine besides its own, which both hold something.
const keptDisk, namedDisk = "HOLLOW-KEPT", "HOLLOW-NAMED"

// foreignMachine makes a machine of the fleet another cluster's, the only control plane there, with two disks of data.
func foreignMachine(m *fleet.Machine) {
	m.State = fleet.StateForeign
	for i, serial := range []string{keptDisk, namedDisk} {
		m.Disks = append(m.Disks, fleet.Disk{
			Device: fmt.Sprintf("/dev/sd%c", 'y'+i), Size: 1 << 40, Model: "HOLLOW DATA", Serial: serial, Transport: "sata", Signature: "xfs",
		})
	}
}

// foreign is the machine of another cluster.
func (s *suite) foreign(t *testing.T) *fleet.Machine {
	t.Helper()
	all := s.stack.Fleet().Machines
	i := slices.IndexFunc(all, func(m fleet.Machine) bool { return m.State == fleet.StateForeign })
	if i < 0 {
		t.Fatal("the fleet has no machine of another cluster")
	}
	return &all[i]
}

// reclaimedMachine wipes a machine of another cluster with that cluster's talosconfig, from the command line: not with
// another machine's UUID, not while that cluster loses its etcd by it, and not by somebody who may not store the talosconfig. Then
// it waits for approval like any other, and of its data disks one is empty: the one that was named.
func reclaimedMachine(t *testing.T, s *suite) {
	m, admin := s.foreign(t), s.stack.Dir().Kubeconfig()
	printed, err := s.stack.Machines().Do(t.Context(), "talosconfig", m.Name)
	if err != nil {
		t.Fatal(err)
	}
	var talosconfig string
	if err := json.Unmarshal(printed, &talosconfig); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "old-cluster.yaml")
	if err := os.WriteFile(file, []byte(talosconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	address := m.Addr().String()
	reclaim := func(kubeconfig, uuid string, more ...string) result {
		t.Helper()
		args := append([]string{"machine", "reclaim", address, "--uuid", uuid, "--talosconfig", file, "--wait", "--timeout", bound(3 * time.Minute).String()}, more...)
		r := s.run(t, kubeconfig, "ichor", args...)
		key := talosconfig[strings.Index(talosconfig, "key: ")+len("key: "):][:40]
		if strings.Contains(r.out+r.err, key) {
			t.Errorf("the talosconfig is shown:\n%s%s", r.out, r.err)
		}
		if told := s.calls(t, m, "Reset"); r.status != 0 && told > 0 {
			t.Fatalf("the machine was told to wipe itself, and the answer is\n%s%s", r.out, r.err)
		}
		return r
	}
	if r := reclaim(s.stack.Dir().KubeconfigOf("operator"), m.UUID); r.status != 4 || !strings.Contains(r.err, "--talosconfig-secret") {
		t.Errorf("an operator may not write Secrets: status %d\n%s", r.status, r.err)
	}
	other := s.hardware(t, s.readyWorker(t)).UUID
	if r := reclaim(admin, other); r.status == 0 || !strings.Contains(r.err, "which Ichor manages") {
		t.Errorf("the UUID of one of our own machines: status %d\n%s", r.status, r.err)
	}
	if r := reclaim(admin, "4c4c4544-0051-3610-8052-feedfeedfeed"); r.status != 5 || !strings.Contains(r.err, m.UUID) {
		t.Errorf("the UUID of no machine: status %d\n%s", r.status, r.err)
	}
	if r := reclaim(admin, m.UUID); r.status != 5 || !strings.Contains(r.err, "acceptQuorumLoss") {
		t.Errorf("the only control plane of another cluster: status %d\n%s", r.status, r.err)
	}

	r := reclaim(admin, m.UUID, "--accept-quorum-loss", "--wipe-disk", "serial="+namedDisk)
	if r.status != 0 || !strings.Contains(r.err, "Succeeded") || !strings.Contains(r.err, namedDisk) {
		t.Fatalf("status %d\n%s%s", r.status, r.out, r.err)
	}
	if told := s.calls(t, m, "Reset"); told != 1 {
		t.Errorf("the machine was told to wipe itself %d times", told)
	}
	eventually(t, 2*time.Minute, func() error {
		found, err := s.admin.IchorV1alpha1().TalosMachines().Get(t.Context(), m.UUID, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found.Spec.ApprovalState != v1alpha1.ApprovalPending || found.Status.Inventory == nil {
			return fmt.Errorf("the machine is %s, with the inventory %+v", found.Spec.ApprovalState, found.Status.Inventory)
		}
		for _, disk := range found.Status.Inventory.Disks {
			if disk.Serial == keptDisk && disk.Signature != "xfs" || disk.Serial == namedDisk && disk.Signature != "" {
				t.Errorf("disk %s has the signature %q", disk.Serial, disk.Signature)
			}
		}
		return nil
	})
	s.forgetReclaims(t)
}

// forgetReclaims deletes the reclaims, of which those that were made hold what was found; their Secrets go with them.
func (s *suite) forgetReclaims(t *testing.T) {
	t.Helper()
	reclaims := s.admin.IchorV1alpha1().MachineReclaims()
	list, err := reclaims.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 3 {
		t.Errorf("%d reclaims are left, want the three that were looked at", len(list.Items))
	}
	for _, each := range list.Items {
		if each.Status.Phase == v1alpha1.ReclaimSucceeded && (len(each.Status.WillWipe) != 2 || len(each.Status.WillKeep) == 0) {
			t.Errorf("wiped %+v, kept %+v", each.Status.WillWipe, each.Status.WillKeep)
		}
		if err := reclaims.Delete(t.Context(), each.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 2*time.Minute, func() error {
		for _, each := range list.Items {
			_, err := s.kubernetes.CoreV1().Secrets(v1alpha1.SystemNamespace).Get(t.Context(), each.Spec.TalosconfigSecretRef.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("the talosconfig of reclaim %s is still there (%w)", each.Name, err)
			}
		}
		return nil
	})
}

// calls is how often a method of a machine was called.
func (s *suite) calls(t *testing.T, m *fleet.Machine, method string) uint64 {
	t.Helper()
	for name, calls := range s.consoleOf(t, m).Calls {
		if strings.HasSuffix(name, "MachineService/"+method) {
			return calls.Count
		}
	}
	return 0
}
