// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

const goodPassword = "correct horse battery staple"

// everything is an audit policy that writes down all there is.
const everything = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"

func TestAPasswordGoesInAndNeverOut(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t, harness.Servers(0)), testContext(t)
	log := filepath.Join(t.TempDir(), "audit.log")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	options := env.Options(t)
	options.Recommended.Audit.PolicyFile, options.Recommended.Audit.LogOptions.Path = policy, log
	server := env.Serve(t, options, harness.Run)
	admin, viewer := env.Client(t, server, harness.Admin), env.Client(t, server, harness.Viewer)
	users := admin.IchorV1alpha1().IchorUsers()
	seen, err := users.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	if _, err := users.Create(ctx, &v1alpha1.IchorUser{ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Spec: v1alpha1.IchorUserSpec{Role: v1alpha1.IchorUserOperator}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	client := admin.IchorV1alpha1().RESTClient()
	put := func(user, query, body string) error {
		req := client.Put().AbsPath(group, "ichorusers", user, "password").SetHeader("Content-Type", "application/json").Body([]byte(body))
		if query != "" {
			req = req.Param("dryRun", query)
		}
		return req.Do(ctx).Error()
	}
	for _, tc := range []struct {
		what, user, query, body string
		want                    func(error) bool
	}{
		{"too short", "alice", "", `{"password":"short"}`, apierrors.IsInvalid},
		{"with the name in it", "alice", "", `{"password":"i am Alice herself"}`, apierrors.IsInvalid},
		{"one letter", "alice", "", `{"password":"aaaaaaaaaaaaaaaa"}`, apierrors.IsInvalid},
		{"none", "alice", "", `{"password":""}`, apierrors.IsInvalid},
		{"a number", "alice", "", `{"password":123456789012}`, apierrors.IsBadRequest},
		{"no JSON", "alice", "", goodPassword, apierrors.IsBadRequest},
		{"something else besides", "alice", "", `{"password":"` + goodPassword + `","hint":"comic"}`, apierrors.IsBadRequest},
		{"too long", "alice", "", `{"password":"` + strings.Repeat("long", 10_000) + `"}`, apierrors.IsRequestEntityTooLargeError},
		{"nobody's", "bob", "", `{"password":"` + goodPassword + `"}`, apierrors.IsNotFound},
		{"a dry run", "alice", "All", `{"password":"` + goodPassword + `"}`, apierrors.IsBadRequest},
	} {
		if err := put(tc.user, tc.query, tc.body); !tc.want(err) || strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
	hashes := func() []string {
		got, err := env.Etcd.Get(ctx, env.Prefix+"/ichoruserpasswords/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, kv := range got.Kvs {
			out = append(out, string(kv.Value))
		}
		return out
	}
	if stored := hashes(); len(stored) > 0 {
		t.Fatalf("what was refused is stored: %v", stored)
	}
	if err := put("alice", "", `{"password":"`+goodPassword+`"}`); err != nil {
		t.Fatalf("set: %v", err)
	}
	stored := hashes()
	if len(stored) != 1 || !strings.Contains(stored[0], "$argon2id$") || strings.Contains(stored[0], "horse") {
		t.Fatalf("stored as %v", stored)
	}
	hash := stored[0][strings.Index(stored[0], "$argon2id$"):][:60]

	var shown []string
	for _, path := range []string{"ichorusers", "ichorusers/alice", "ichorusers/alice/status", "ichoruserpasswords"} {
		body, err := client.Get().AbsPath(group, path).Do(ctx).Raw()
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", path, err)
		}
		shown = append(shown, string(body))
	}
	if err := client.Get().AbsPath(group, "ichorusers/alice/password").Do(ctx).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("read a password: %v, want a 405", err)
	}
	if err := viewer.IchorV1alpha1().RESTClient().Put().AbsPath(group, "ichorusers/alice/password").SetHeader("Content-Type", "application/json").Body([]byte(`{}`)).Do(ctx).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer sets a password: %v, want a 403", err)
	}
	alice, err := users.Get(ctx, "alice", metav1.GetOptions{})
	if err != nil || alice.Status.PasswordChangedAt == nil || len(alice.Status.Conditions) != 1 {
		t.Errorf("the user after it: %+v, %v", alice, err)
	}
	alice.Status.PasswordChangedAt = nil
	if alice, err = users.UpdateStatus(ctx, alice, metav1.UpdateOptions{}); err != nil || alice.Status.PasswordChangedAt == nil {
		t.Errorf("whoever writes the status says when the password was set: %v", err)
	}
	// Made, password set, status written: the watch has seen it all once it shows the last version.
	for last := ""; last != alice.ResourceVersion; {
		select {
		case event := <-seen.ResultChan():
			text, err := json.Marshal(event.Object)
			if err != nil {
				t.Fatal(err)
			}
			shown = append(shown, string(text))
			last = event.Object.(*v1alpha1.IchorUser).ResourceVersion
		case <-ctx.Done():
			t.Fatal("the watch doesn't show the user's last version")
		}
	}

	if err := users.Delete(ctx, "alice", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := hashes(); len(left) > 0 {
		t.Errorf("the password of a user who is gone is still there: %v", left)
	}
	if err := env.Stop(server); err != nil {
		t.Error(err)
	}
	lines, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(lines), "ichorusers/alice/password") || !strings.Contains(string(lines), `"requestObject"`) {
		t.Errorf("the audit log isn't one that writes down everything:\n%.2000s", lines)
	}
	for _, text := range append(shown, string(lines)) {
		if strings.Contains(text, "horse") || strings.Contains(text, hash) || strings.Contains(text, "argon2id") {
			t.Errorf("a password or its hash is in:\n%.2000s", text)
		}
	}
}

func TestACertificateIsAskedForThroughItsDoor(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	users := env.Client(t, 0, harness.Admin).IchorV1alpha1().IchorUsers()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asked := &v1alpha1.UserCertificateRequest{Request: csr(key), By: "somebody"}
	user := &v1alpha1.IchorUser{ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Spec: v1alpha1.IchorUserSpec{Role: v1alpha1.IchorUserViewer, CertificateRequest: asked}}
	made, err := users.Create(ctx, user, metav1.CreateOptions{})
	if err != nil || made.Spec.CertificateRequest != nil {
		t.Fatalf("made: %+v, %v, want no request", made.Spec, err)
	}
	wrong := made.DeepCopy()
	wrong.Spec.CertificateRequest = &v1alpha1.UserCertificateRequest{Request: []byte("no"), TTL: &metav1.Duration{Duration: time.Second}}
	if _, err := users.UpdateCertificate(ctx, made.Name, wrong, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || strings.Count(err.Error(), "spec.certificateRequest.") != 2 {
		t.Errorf("a request that is none, for a second: %v, want a 422 with both", err)
	}
	good := made.DeepCopy()
	good.Spec.CertificateRequest, good.Spec.Role = asked, v1alpha1.IchorUserAdmin
	after, err := users.UpdateCertificate(ctx, made.Name, good, metav1.UpdateOptions{})
	if err != nil || after.Spec.CertificateRequest == nil || after.Spec.CertificateRequest.By != harness.Admin || after.Spec.CertificateRequest.TTL.Duration != 24*time.Hour {
		t.Fatalf("asked: %+v, %v", after.Spec.CertificateRequest, err)
	}
	if after.Spec.Role != v1alpha1.IchorUserViewer {
		t.Errorf("the door for certificates made a viewer %s", after.Spec.Role)
	}
	if again, err := users.UpdateCertificate(ctx, made.Name, after, metav1.UpdateOptions{}); err != nil || again.ResourceVersion != after.ResourceVersion {
		t.Errorf("the same again: %v, want no change", err)
	}
	after.Spec.Disabled = true
	if after, err = users.Update(ctx, after, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := users.UpdateCertificate(ctx, made.Name, after, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("for a disabled user: %v, want a 422", err)
	}
}

func TestACredentialRequestRecordsWhoAskedAndNeedsTheVerb(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := &v1alpha1.TalosCredentialRequest{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.TalosCredentialRequestSpec{
		ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Role: v1alpha1.TalosRoleReader, Request: csr(key),
		Requester: v1alpha1.CredentialRequester{Username: "somebody", Groups: []string{"system:masters"}},
	}}
	_, err = env.Client(t, 0, harness.Writer).IchorV1alpha1().TalosCredentialRequests().Create(ctx, request, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"request"`) || !strings.Contains(err.Error(), "os:reader") {
		t.Errorf("without the verb: %v, want a 403 that names it", err)
	}
	requests := env.Client(t, 0, harness.Admin).IchorV1alpha1().TalosCredentialRequests()
	made, err := requests.Create(ctx, request, metav1.CreateOptions{})
	if err != nil || made.Spec.Requester.Username != harness.Admin || made.Spec.TTL.Duration != time.Hour {
		t.Fatalf("made: %+v, %v", made, err)
	}
	made.Spec.Role = v1alpha1.TalosRoleAdmin
	if _, err := requests.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("another role afterwards: %v, want a 422", err)
	}
}

func TestAReclaimOfALiveMachineAndAStorageInUse(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	reclaim := &v1alpha1.MachineReclaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.MachineReclaimSpec{
		Address: "10.0.0.7", UUID: strings.ToUpper(machineUUID(0)), TalosconfigSecretRef: v1alpha1.LocalSecretReference{Name: "old"},
	}}
	reclaims := w.admin.IchorV1alpha1().MachineReclaims()
	if _, err := reclaims.Create(ctx, reclaim, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), machineUUID(0)) {
		t.Errorf("a machine that Ichor has: %v, want a 422 that names it", err)
	}
	reclaim.Spec.UUID = strings.ToUpper(machineUUID(99))
	made, err := reclaims.Create(ctx, reclaim, metav1.CreateOptions{})
	if err != nil || made.Spec.UUID != machineUUID(99) {
		t.Fatalf("another one: %+v, %v", made, err)
	}
	made.Spec.WipeDisks = []v1alpha1.DiskMatch{{Serial: "S1"}}
	if _, err := reclaims.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("more disks afterwards: %v, want a 422", err)
	}

	client := w.dynamic(t, harness.Admin)
	for _, kind := range []string{"TalosStorage", "TalosEtcdBackup"} {
		if _, err := of(client, kind).Create(ctx, example(t, kind), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := of(client, "TalosStorage").Delete(ctx, "minio", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "prod") {
		t.Errorf("a storage that a backup goes to: %v, want a 403 that names the backup", err)
	}
	if err := of(client, "TalosEtcdBackup").Delete(ctx, "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := of(client, "TalosStorage").Delete(ctx, "minio", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a storage that nothing goes to: %v", err)
	}
}
