// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

// ballast is as much as annotations may be, in bytes; quota is how much fits into the etcd of the test.
const (
	ballast = 200 << 10
	quota   = 4 << 20
)

// TestAFullEtcd fills etcd up to its quota: every way to write says what is wrong and what to do, reading and deleting go
// on, and after compaction, defragmentation and the end of the alarm everything that was acknowledged is there.
func TestAFullEtcd(t *testing.T) {
	t.Parallel()
	w, etcd := newSmallWorld(t)
	ctx := testContext(t)
	acknowledged := w.fillEtcd(ctx, t)
	before := w.everything(ctx, t)

	for what, write := range w.writes(ctx) {
		err := write()
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "etcd has no space left and refuses changes; nothing was changed") {
			t.Errorf("%s: %v (%s), want to be told that etcd is full", what, err, apierrors.ReasonForError(err))
		}
	}
	if after := w.everything(ctx, t); after != before {
		t.Errorf("what was refused is stored:\n%s\nbefore:\n%s", after, before)
	}
	if body, err := w.admin.IchorV1alpha1().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		t.Errorf("a server that can't write is taken away from readers, too: %v\n%s", err, body)
	}
	seen, err := w.admin.IchorV1alpha1().TalosConfigPatches().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen.Stop()
	// Half of them: a database that was defragmented isn't much smaller than what is in it.
	victims, kept := acknowledged[:len(acknowledged)/2], acknowledged[len(acknowledged)/2:]
	for _, victim := range victims {
		if err := w.admin.IchorV1alpha1().TalosConfigPatches().Delete(ctx, victim, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting, which makes room: %v", err)
		}
	}

	makeRoom(ctx, t, etcd)
	for what, write := range w.writes(ctx) {
		if err := write(); err != nil {
			t.Errorf("%s, with room again: %v", what, err)
		}
	}
	for _, name := range kept {
		if got, err := w.admin.IchorV1alpha1().TalosConfigPatches().Get(ctx, name, metav1.GetOptions{}); err != nil || len(got.Annotations["ballast"]) != ballast {
			t.Errorf("%s was acknowledged: %v", name, err)
		}
	}
}

// newSmallWorld is a world on an etcd of its own, with a small quota.
func newSmallWorld(t *testing.T) (*world, *clientv3.Client) {
	t.Helper()
	member, err := apiserver.StartEmbeddedEtcd(testContext(t), filepath.Join(t.TempDir(), "etcd"), func(config *embed.Config) {
		config.QuotaBackendBytes, config.UnsafeNoFsync = quota, true
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{member.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	w := &world{Env: harness.Start(t, harness.Servers(0))}
	options := w.Options(t)
	options.Recommended.Etcd.StorageConfig.Transport.ServerList = []string{member.Endpoint}
	server := w.Serve(t, options, harness.Run)
	w.admin, w.approver, w.controller = w.Client(t, server, harness.Admin), w.Client(t, server, harness.Approver), w.Client(t, server, harness.Controller)
	ctx := testContext(t)
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Create(ctx, cluster(3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.admin.IchorV1alpha1().IchorUsers().Create(ctx, &v1alpha1.IchorUser{ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Spec: v1alpha1.IchorUserSpec{Role: v1alpha1.IchorUserOperator}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.machines = append(w.machines, w.discover(t, 0), w.discover(t, 1))
	return w, etcd
}

func patchOf(name string) *v1alpha1.TalosConfigPatch {
	return &v1alpha1.TalosConfigPatch{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TalosConfigPatchSpec{Target: v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}}, Machine: &v1alpha1.MachineSection{Raw: []byte(`{"sysctls":{"net.core.somaxconn":"4096"}}`)}},
	}
}

// fillEtcd writes until etcd refuses, and returns what it didn't refuse.
func (w *world) fillEtcd(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var acknowledged []string
	for n := range 2 * quota / ballast {
		made := patchOf(fmt.Sprintf("ballast-%d", n))
		made.Annotations = map[string]string{"ballast": strings.Repeat("b", ballast)}
		_, err := w.admin.IchorV1alpha1().TalosConfigPatches().Create(ctx, made, metav1.CreateOptions{})
		if err != nil {
			if !apierrors.IsServiceUnavailable(err) {
				t.Fatalf("the write that fills etcd: %v", err)
			}
			return acknowledged
		}
		acknowledged = append(acknowledged, made.Name)
	}
	t.Fatalf("etcd takes more than its quota of %d bytes", quota)
	return nil
}

// writes are ways to write, each of which has an effect once.
func (w *world) writes(ctx context.Context) map[string]func() error {
	machines := w.admin.IchorV1alpha1().TalosMachines()
	approval := func(n int, role v1alpha1.MachineRole) func() error {
		return func() error {
			body := approve(w.machines[n], role)
			body.Spec.Hostname = fmt.Sprintf("%s-%d", role, n)
			_, err := w.approver.IchorV1alpha1().TalosMachines().UpdateApproval(ctx, body.Name, body, metav1.UpdateOptions{})
			return err
		}
	}
	raw := func(client *versioned.Clientset, path, contentType, body string) func() error {
		return func() error {
			return client.IchorV1alpha1().RESTClient().Patch(types.PatchType(contentType)).AbsPath(group, path).Param("fieldManager", "test").
				Body([]byte(body)).Do(ctx).Error()
		}
	}
	return map[string]func() error{
		"create": func() error {
			_, err := machines.Create(ctx, machine(9), metav1.CreateOptions{})
			return err
		},
		"patch":         raw(w.admin, "ichorusers/alice", "application/merge-patch+json", `{"spec":{"displayName":"Alice"}}`),
		"apply":         raw(w.admin, "talosconfigpatches/applied", "application/apply-patch+yaml", `{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosConfigPatch","metadata":{"name":"applied"},"spec":{"target":{"clusterRef":{"name":"prod"}},"machine":{"sysctls":{"net.core.somaxconn":"4096"}}}}`),
		"status":        raw(w.controller, "talosclusters/prod/status", "application/merge-patch+json", `{"status":{"secretsBundleHash":"`+strings.Repeat("0", 64)+`"}}`),
		"worker":        approval(0, v1alpha1.RoleWorker),
		"control plane": approval(1, v1alpha1.RoleControlPlane),
		"password": func() error {
			return w.admin.IchorV1alpha1().RESTClient().Put().AbsPath(group, "ichorusers/alice/password").SetHeader("Content-Type", "application/json").
				Body([]byte(`{"password":"` + goodPassword + `"}`)).Do(ctx).Error()
		},
	}
}

// everything is the resourceVersion of each object that isn't ballast.
func (w *world) everything(ctx context.Context, t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, resource := range []string{"talosclusters", "talosmachines", "talosconfigpatches", "ichorusers"} {
		list := &metav1.PartialObjectMetadataList{}
		body, err := w.admin.IchorV1alpha1().RESTClient().Get().AbsPath(group, resource).SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(ctx)
		if err != nil {
			t.Fatalf("list %s of a full etcd: %v", resource, err)
		}
		if err := json.Unmarshal(body, list); err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			fmt.Fprintf(&out, "%s/%s %s\n", resource, object.Name, object.ResourceVersion)
		}
	}
	return out.String()
}

// makeRoom is what an administrator does about a full etcd.
func makeRoom(ctx context.Context, t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	now, err := etcd.Get(ctx, "revision")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Defragment(ctx, etcd.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	alarms, err := etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err != nil || len(alarms.Alarms) != 1 {
		t.Fatalf("alarms %+v, %v, want the one that was disarmed", alarms, err)
	}
}

// TestAnObjectLargerThanEtcdTakes is refused as the client's fault.
func TestAnObjectLargerThanEtcdTakes(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	large := &v1alpha1.IchorUser{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: v1alpha1.IchorUserSpec{Role: v1alpha1.IchorUserViewer}}
	for n := range 12_000 { // the one part of an object that has no bound
		large.OwnerReferences = append(large.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "IchorInstallation", Name: fmt.Sprintf("one-of-many-%d", n), UID: types.UID(machineUUID(n)),
		})
	}
	_, err := env.Client(t, 0, harness.Admin).IchorV1alpha1().IchorUsers().Create(testContext(t), large, metav1.CreateOptions{})
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "larger than etcd stores") {
		t.Errorf("an object of 2 MB: %.300v (%s), want a 413", err, apierrors.ReasonForError(err))
	}
}
