// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	client "maesh.dev/ichor/pkg/client/clientset/versioned/typed/ichor/v1alpha1"
	"maesh.dev/ichor/test/chaos/judge"
)

// own is the number of the first machine that belongs to one writer alone.
const own = 1000

func patch(name, marker string, priority int32) *v1alpha1.TalosConfigPatch {
	return &v1alpha1.TalosConfigPatch{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{markerKey: marker}},
		Spec: v1alpha1.TalosConfigPatchSpec{
			Target: v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: clusterName}}, Priority: &priority,
			Machine: &v1alpha1.MachineSection{Raw: []byte(`{"sysctls":{"net.core.somaxconn":"4096"}}`)},
		},
	}
}

// ownMachine is the writer's machine, made if it isn't there yet.
func (w *writer) ownMachine(ctx context.Context) (*v1alpha1.TalosMachine, error) {
	n := own + w.number
	seen, err := w.api.TalosMachines().Get(ctx, uuidOf(n), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a := w.Ledger.Begin(machineKey(uuidOf(n)), w.number)
		seen, err = w.api.TalosMachines().Create(ctx, machine(n, a.Marker), metav1.CreateOptions{})
		return seen, w.settle(a, seen, err)
	}
	if err != nil {
		w.Seen.note(w.where, err)
	}
	return seen, err
}

func machineAgain(ctx context.Context, name string) func(client.IchorV1alpha1Interface) (metav1.Object, error) {
	return func(api client.IchorV1alpha1Interface) (metav1.Object, error) {
		return api.TalosMachines().Get(ctx, name, metav1.GetOptions{})
	}
}

// writeStatus writes what was seen on a machine, by update or by patch.
func writeStatus(w *writer, ctx context.Context) error {
	seen, err := w.ownMachine(ctx)
	if err != nil {
		return err
	}
	a := w.Ledger.Begin(machineKey(seen.Name), w.number)
	var written *v1alpha1.TalosMachine
	if w.random.IntN(2) == 0 {
		seen.Status.Hostname = a.Marker
		written, err = w.api.TalosMachines().UpdateStatus(ctx, seen, metav1.UpdateOptions{})
	} else {
		written, err = w.api.TalosMachines().Patch(ctx, seen.Name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"hostname":%q}}`, a.Marker), metav1.PatchOptions{}, "status")
	}
	if w.settle(a, written, err) == nil {
		w.readBackSome(a.Key, written, machineAgain(ctx, seen.Name))
	}
	return err
}

// label patches a machine's labels.
func label(w *writer, ctx context.Context) error {
	seen, err := w.ownMachine(ctx)
	if err != nil {
		return err
	}
	a := w.Ledger.Begin(machineKey(seen.Name), w.number)
	body := fmt.Appendf(nil, `{"metadata":{"labels":{"rack":"%d"},"annotations":{%q:%q}}}`, w.steps, markerKey, a.Marker)
	written, err := w.api.TalosMachines().Patch(ctx, seen.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if w.settle(a, written, err) == nil {
		w.readBackSome(a.Key, written, machineAgain(ctx, seen.Name))
	}
	return err
}

// apply applies a patch of its own, as two managers in turn.
func apply(w *writer, ctx context.Context) error {
	name := fmt.Sprintf("applied-%d", w.number)
	a := w.Ledger.Begin("talosconfigpatches/"+name, w.number)
	body := fmt.Appendf(nil, `{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosConfigPatch","metadata":{"name":%q,"annotations":{%q:%q}},
		"spec":{"target":{"clusterRef":{"name":%q}},"priority":%d,"machine":{"sysctls":{"net.core.somaxconn":"%d"}}}}`, name, markerKey, a.Marker, clusterName, w.steps%1000, w.steps)
	manager := fmt.Sprintf("manager-%d", w.steps%2)
	written, err := w.api.TalosConfigPatches().Patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: manager, Force: new(true)})
	if w.settle(a, written, err) == nil {
		w.readBackSome(a.Key, written, func(api client.IchorV1alpha1Interface) (metav1.Object, error) {
			return api.TalosConfigPatches().Get(ctx, name, metav1.GetOptions{})
		})
	}
	return err
}

// operate suspends an operation, lets it go on and resumes it.
func operate(w *writer, ctx context.Context) error {
	const name = "reboot"
	seen, err := w.api.TalosOperations().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a := w.Ledger.Begin("talosoperations/"+name, w.number)
		made, err := w.api.TalosOperations().Create(ctx, &v1alpha1.TalosOperation{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{markerKey: a.Marker}},
			Spec:       v1alpha1.TalosOperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: clusterName}, Reboot: &v1alpha1.Reboot{}},
		}, metav1.CreateOptions{})
		return w.settle(a, made, err)
	}
	if err != nil {
		w.Seen.note(w.where, err)
		return err
	}
	if w.steps%3 == 0 {
		a := w.Ledger.BeginUnmarked("talosoperations/" + name)
		resumed, err := w.api.TalosOperations().Resume(ctx, name, seen, metav1.UpdateOptions{})
		return w.settle(a, resumed, err)
	}
	a := w.Ledger.Begin("talosoperations/"+name, w.number)
	seen.Spec.Suspend = !seen.Spec.Suspend
	seen.Annotations[markerKey] = a.Marker
	written, err := w.api.TalosOperations().Update(ctx, seen, metav1.UpdateOptions{})
	return w.settle(a, written, err)
}

// UserName is whose password is written.
const UserName = "alice"

// PasswordKey is where attempts to set it are in the ledger; each attempt's marker is a part of the password.
const PasswordKey = judge.Elsewhere + UserName

// Password is the one that an attempt has set.
func Password(a *judge.Attempt) string { return "correct horse " + a.Marker }

func user() *v1alpha1.IchorUser {
	return &v1alpha1.IchorUser{ObjectMeta: metav1.ObjectMeta{Name: UserName}, Spec: v1alpha1.IchorUserSpec{Role: v1alpha1.IchorUserOperator}}
}

// setPassword sets a password, which costs the server some time and memory.
func setPassword(w *writer, ctx context.Context) error {
	if w.steps%16 != 0 {
		return nil
	}
	a := w.Ledger.Begin(PasswordKey, w.number)
	err := w.api.RESTClient().Put().AbsPath("/apis/ichor.maesh.dev/v1alpha1/ichorusers", UserName, "password").SetHeader("Content-Type", "application/json").
		Body(fmt.Appendf(nil, `{"password":%q}`, Password(a))).Do(ctx).Error()
	return w.settle(a, nil, err)
}

// comeAndGo makes an object and deletes it.
func comeAndGo(w *writer, ctx context.Context) error {
	name := fmt.Sprintf("brief-%d", w.steps)
	key := "talosconfigpatches/" + name
	a := w.Ledger.Begin(key, w.number)
	made, err := w.api.TalosConfigPatches().Create(ctx, patch(name, a.Marker, 1), metav1.CreateOptions{})
	if w.settle(a, made, err) != nil {
		return err
	}
	if w.random.IntN(4) == 0 {
		return nil // some stay
	}
	deletion := w.Ledger.BeginDeletion(key, string(made.UID), true)
	return w.settle(deletion, nil, w.api.TalosConfigPatches().Delete(ctx, name, metav1.DeleteOptions{}))
}

// countUp reads the counter and writes the next number; whoever was too slow is refused.
func countUp(w *writer, ctx context.Context) error {
	seen, err := w.api.TalosConfigPatches().Get(ctx, "counter", metav1.GetOptions{})
	if err != nil {
		w.Seen.note(w.where, err)
		return err
	}
	a := w.Ledger.Begin(judge.Counter, w.number)
	next := *seen.Spec.Priority + 1
	seen.Spec.Priority, seen.Annotations = &next, map[string]string{markerKey: a.Marker}
	written, err := w.api.TalosConfigPatches().Update(ctx, seen, metav1.UpdateOptions{})
	if w.settle(a, written, err) == nil {
		w.readBackSome(a.Key, written, func(api client.IchorV1alpha1Interface) (metav1.Object, error) {
			return api.TalosConfigPatches().Get(ctx, "counter", metav1.GetOptions{})
		})
	}
	return err
}
