// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

// machineUUID is the UUID, and so the name, of the nth machine of a test.
func machineUUID(n int) string { return fmt.Sprintf("4c4c4544-0051-3610-8052-b4c04f4c%04x", n) }

func machineMAC(n int) string { return fmt.Sprintf("02:00:5e:00:%02x:%02x", n/256, n%256) }

// fingerprintOf is the fingerprint that the nth machine presents at its nth boot.
func fingerprintOf(n, boot int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", n, boot))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func cluster(count int32) *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod"},
		Spec: v1alpha1.TalosClusterSpec{
			SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
			ControlPlane: v1alpha1.ControlPlane{Count: count, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}},
		},
	}
}

func machine(n int) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: machineUUID(n)},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "prod"},
			Identity:   v1alpha1.MachineIdentity{UUID: machineUUID(n), SerialNumber: fmt.Sprintf("SN%d", n), MACAddresses: []string{machineMAC(n)}},
		},
	}
}

// inspected is the status of a machine that was seen in maintenance mode.
func inspected(n int) v1alpha1.TalosMachineStatus {
	return v1alpha1.TalosMachineStatus{
		Stage: v1alpha1.StageMaintenance, Phase: v1alpha1.PhasePending, Addresses: []string{fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)},
		MaintenanceFingerprint: fingerprintOf(n, 0),
		Inventory: &v1alpha1.MachineInventory{
			Memory: resource.MustParse("32Gi"),
			Disks: []v1alpha1.DiskInventory{
				{Device: "/dev/nvme0n1", Size: resource.MustParse("512G"), Serial: "S1", WWID: "eui.01", Transport: "nvme"},
				{Device: "/dev/sda", Size: resource.MustParse("4T"), Serial: "S2", WWID: "naa.02", Transport: "sata", Rotational: true},
				{Device: "/dev/sdb", Size: resource.MustParse("8Gi"), Serial: "S3", Transport: "sata"},
				{Device: "/dev/sdc", Size: resource.MustParse("64G"), Serial: "S4", Transport: "usb", Signature: "xfs"},
				{Device: "/dev/sdd", Size: resource.MustParse("1T"), Serial: "S5", ReadOnly: true},
				{Device: "/dev/sr0", Size: resource.MustParse("700M"), Serial: "S6", CDROM: true},
				{Device: "/dev/sde", Size: resource.MustParse("1T"), Serial: "TWIN", WWID: "naa.11"},
				{Device: "/dev/sdf", Size: resource.MustParse("1T"), Serial: "TWIN", WWID: "naa.12"},
			},
			Links: []v1alpha1.LinkInventory{{Name: "enp1s0", PermanentMAC: machineMAC(n), MAC: machineMAC(n), Up: true}},
		},
	}
}

// approve turns a machine into an approval of it as the role.
func approve(m *v1alpha1.TalosMachine, role v1alpha1.MachineRole) *v1alpha1.TalosMachine {
	m = m.DeepCopy()
	m.Spec.ApprovalState = v1alpha1.ApprovalApproved
	m.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: m.Status.MaintenanceFingerprint}
	m.Spec.Role = role
	m.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}}
	return m
}

// testContext ends before the test binary's own deadline would hide which call hung.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// world is an environment with a cluster and inspected machines.
type world struct {
	*harness.Env
	admin, approver, writer, controller *versioned.Clientset
	machines                            []*v1alpha1.TalosMachine
}

func newWorld(t *testing.T, count int32, machines int, options ...harness.Option) *world {
	t.Helper()
	env := harness.Start(t, options...)
	w := &world{
		Env: env, admin: env.Client(t, 0, harness.Admin), approver: env.Client(t, 0, harness.Approver),
		writer: env.Client(t, 0, harness.Writer), controller: env.Client(t, 0, harness.Controller),
	}
	ctx := testContext(t)
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Create(ctx, cluster(count), metav1.CreateOptions{}); err != nil {
		t.Fatalf("create cluster: %v", err)
	}
	for n := range machines {
		w.machines = append(w.machines, w.discover(t, n))
	}
	return w
}

// discover enters the nth machine as the controller does.
func (w *world) discover(t *testing.T, n int) *v1alpha1.TalosMachine {
	t.Helper()
	ctx, client := testContext(t), w.controller.IchorV1alpha1().TalosMachines()
	made, err := client.Create(ctx, machine(n), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create machine %d: %v", n, err)
	}
	made.Status = inspected(n)
	seen, err := client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("write status of machine %d: %v", n, err)
	}
	return seen
}

// eventually waits, with a bound, until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("after a minute it isn't so that %s", what)
		case <-ticker.C:
		}
	}
}
