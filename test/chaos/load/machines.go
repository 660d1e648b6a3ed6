// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// pool is how many machines are found, approved and removed by whoever comes first.
	pool = 16
	// highest is the largest count of control planes; the least is 1.
	highest = 4
	// clusterName is the one cluster.
	clusterName = "prod"
	// markerKey is the annotation that says which write an object is from.
	markerKey = "chaos.example.org/marker"
)

func cluster() *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec: v1alpha1.TalosClusterSpec{
			SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
			ControlPlane: v1alpha1.ControlPlane{Count: 2, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}},
		},
	}
}

func uuidOf(n int) string { return fmt.Sprintf("4c4c4544-0051-3610-8052-b4c04f4c%04x", n) }

func fingerprintOf(n int) string {
	sum := sha256.Sum256(fmt.Append(nil, n))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func machineKey(name string) string { return "talosmachines/" + name }

func machine(n int, marker string) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: uuidOf(n), Annotations: map[string]string{markerKey: marker}},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: clusterName},
			Identity:   v1alpha1.MachineIdentity{UUID: uuidOf(n), SerialNumber: fmt.Sprintf("SN%d", n), MACAddresses: []string{fmt.Sprintf("02:00:5e:00:%02x:%02x", n/256, n%256)}},
		},
	}
}

func inspected(n int) v1alpha1.TalosMachineStatus {
	mac := fmt.Sprintf("02:00:5e:00:%02x:%02x", n/256, n%256)
	return v1alpha1.TalosMachineStatus{
		Stage: v1alpha1.StageMaintenance, Phase: v1alpha1.PhasePending, Addresses: []string{fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)},
		MaintenanceFingerprint: fingerprintOf(n),
		Inventory: &v1alpha1.MachineInventory{
			Memory: resource.MustParse("32Gi"),
			Disks:  []v1alpha1.DiskInventory{{Device: "/dev/nvme0n1", Size: resource.MustParse("512G"), Serial: "S1", WWID: "eui.01", Transport: "nvme"}},
			Links:  []v1alpha1.LinkInventory{{Name: "enp1s0", PermanentMAC: mac, MAC: mac, Up: true}},
		},
	}
}

// discover enters a machine of the pool that was removed, as the controller does when it finds it again.
func discover(w *writer, ctx context.Context) error {
	return w.discoverMachine(ctx, w.random.IntN(pool))
}

func (w *writer) discoverMachine(ctx context.Context, n int) error {
	name := uuidOf(n)
	seen, err := w.api.TalosMachines().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a := w.Ledger.Begin(machineKey(name), w.number)
		seen, err = w.api.TalosMachines().Create(ctx, machine(n, a.Marker), metav1.CreateOptions{})
		if w.settle(a, seen, err) != nil {
			return err
		}
	} else if err != nil {
		w.Seen.note(w.where, err)
		return err
	}
	if seen.Status.Inventory != nil {
		return nil
	}
	seen.Status = inspected(n)
	a := w.Ledger.Begin(machineKey(name), w.number)
	seen.Status.Hostname = a.Marker
	written, err := w.api.TalosMachines().UpdateStatus(ctx, seen, metav1.UpdateOptions{})
	return w.settle(a, written, err)
}

// approveControlPlane approves one of the pool's machines, though there may be enough.
func approveControlPlane(w *writer, ctx context.Context) error {
	return w.approve(ctx, v1alpha1.RoleControlPlane)
}

// approveWorker is in competition for the same machines.
func approveWorker(w *writer, ctx context.Context) error {
	if w.steps%4 != 0 { // else no machine would be left
		return nil
	}
	return w.approve(ctx, v1alpha1.RoleWorker)
}

// approve approves by update or by patch.
func (w *writer) approve(ctx context.Context, role v1alpha1.MachineRole) error {
	name := uuidOf(w.random.IntN(pool))
	seen, err := w.api.TalosMachines().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		w.Seen.note(w.where, err)
		return err
	}
	if seen.Spec.ApprovalState == v1alpha1.ApprovalApproved || seen.Status.Inventory == nil || seen.DeletionTimestamp != nil {
		return nil
	}
	a := w.Ledger.Begin(machineKey(name), w.number)
	decision := v1alpha1.TalosMachineSpec{
		ApprovalState: v1alpha1.ApprovalApproved, Approval: &v1alpha1.MachineApproval{MaintenanceFingerprint: seen.Status.MaintenanceFingerprint},
		Role: role, Hostname: a.Marker, Disks: []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "S1"}, Role: v1alpha1.DiskSystem}},
	}
	var written *v1alpha1.TalosMachine
	if w.random.IntN(2) == 0 {
		seen.Spec.ApprovalState, seen.Spec.Approval, seen.Spec.Role, seen.Spec.Hostname, seen.Spec.Disks = decision.ApprovalState, decision.Approval, decision.Role, decision.Hostname, decision.Disks
		written, err = w.api.TalosMachines().UpdateApproval(ctx, name, seen, metav1.UpdateOptions{})
	} else {
		body, encode := json.Marshal(map[string]any{"spec": map[string]any{
			"approvalState": decision.ApprovalState, "approval": decision.Approval, "role": role, "hostname": a.Marker, "disks": decision.Disks,
		}})
		if encode != nil {
			return encode
		}
		written, err = w.api.TalosMachines().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, "approval")
	}
	return w.settle(a, written, err)
}

// moveLimit changes how many control planes there should be.
func moveLimit(w *writer, ctx context.Context) error {
	if w.steps%3 != 0 {
		return nil
	}
	a := w.Ledger.Begin("talosclusters/"+clusterName, w.number)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"controlPlane":{"count":%d}}}`, markerKey, a.Marker, 1+w.random.IntN(highest))
	written, err := w.api.TalosClusters().Patch(ctx, clusterName, types.MergePatchType, body, metav1.PatchOptions{})
	return w.settle(a, written, err)
}

// remove removes an approved machine, as a person and the controller do together.
func remove(w *writer, ctx context.Context) error {
	name := uuidOf(w.random.IntN(pool))
	seen, err := w.api.TalosMachines().Get(ctx, name, metav1.GetOptions{})
	if err != nil || seen.Spec.ApprovalState != v1alpha1.ApprovalApproved {
		return err
	}
	if seen.DeletionTimestamp == nil {
		a := w.Ledger.BeginDeletion(machineKey(name), string(seen.UID), false)
		err := w.api.TalosMachines().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &seen.UID}})
		if w.settle(a, nil, err) != nil {
			return err
		}
		if seen, err = w.api.TalosMachines().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	a := w.Ledger.BeginDeletion(machineKey(name), string(seen.UID), true)
	seen.Finalizers = nil
	_, err = w.api.TalosMachines().Finalize(ctx, name, seen, metav1.UpdateOptions{})
	return w.settle(a, nil, err)
}
