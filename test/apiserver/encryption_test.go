// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// encryptWith writes an EncryptionConfiguration for all that Ichor stores: new bytes are written with the first key, and
// all of them are read, and what isn't encrypted. The file is replaced at once, as a mounted Secret is.
func encryptWith(t *testing.T, path string, keys ...string) {
	t.Helper()
	var lines strings.Builder
	for _, key := range keys {
		secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(key[len(key)-1:]), 32))
		fmt.Fprintf(&lines, "      - {name: %s, secret: %s}\n", key, secret)
	}
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" +
		"- resources: ['*.ichor.maesh.dev']\n  providers:\n  - secretbox:\n      keys:\n" + lines.String() + "  - identity: {}\n"
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// keyOf is by which key stored bytes are encrypted, "plain" if by none.
func keyOf(value []byte) string {
	rest, encrypted := strings.CutPrefix(string(value), "k8s:enc:secretbox:v1:")
	if !encrypted {
		return "plain"
	}
	key, _, _ := strings.Cut(rest, ":")
	return key
}

// everyStored are the bytes of all keys of an environment, without its prefix.
func everyStored(ctx context.Context, t *testing.T, env *harness.Env) map[string][]byte {
	t.Helper()
	all, err := env.Etcd.Get(ctx, env.Prefix+"/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, kv := range all.Kvs {
		out[strings.TrimPrefix(string(kv.Key), env.Prefix)] = kv.Value
	}
	return out
}

// encryptedWith are the keys by which the bytes are encrypted, each once.
func encryptedWith(stored map[string][]byte) []string {
	found := map[string]bool{}
	for _, value := range stored {
		found[keyOf(value)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// rewrite writes every object as it is, which encrypts it with the first key.
func rewrite(ctx context.Context, t *testing.T, client dynamic.Interface) {
	t.Helper()
	for kind := range resources {
		list, err := of(client, kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatalf("read %s: %v", kind, err)
		}
		for i := range list.Items {
			if _, err := of(client, kind).Update(ctx, &list.Items[i], metav1.UpdateOptions{}); err != nil {
				t.Errorf("write %s %s as it is: %v", kind, list.Items[i].GetName(), err)
			}
		}
	}
}

// What is stored in plain stays readable when encryption is switched on, is encrypted when it is written again, and keys
// are rotated while the server runs. The keys in etcd stay what they are.
func TestEveryResourceIsEncryptedAtRest(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t), testContext(t)
	w := &world{Env: env, admin: env.Client(t, 0, harness.Admin)}
	plain := w.dynamic(t, harness.Admin)
	for kind := range resources {
		if _, err := of(plain, kind).Create(ctx, example(t, kind), metav1.CreateOptions{}); err != nil {
			t.Fatalf("create %s: %v", kind, err)
		}
	}
	password := func(client *world, words string) {
		t.Helper()
		body := []byte(`{"password":"` + words + `"}`)
		if err := client.raw(t).Put().AbsPath(group, "ichorusers/alice/password").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error(); err != nil {
			t.Fatalf("set a password: %v", err)
		}
	}
	// history records what the machine's history has already: that writes it with the first key, too.
	history := func(client *world) {
		t.Helper()
		client.controller = client.admin
		if _, err := client.remember(ctx, example(t, "TalosMachine").GetName(), rendered("a: 1\n")); err != nil {
			t.Fatalf("record a configuration: %v", err)
		}
	}
	password(w, goodPassword)
	machines := w.admin.IchorV1alpha1().TalosMachines()
	adopted, err := machines.Get(ctx, example(t, "TalosMachine").GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	adopted.Status = inspected(0)
	if adopted, err = machines.UpdateStatus(ctx, adopted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err = machines.UpdateApproval(ctx, adopted.Name, approve(adopted, v1alpha1.RoleWorker), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	history(w)
	before := everyStored(ctx, t, env)
	if got := encryptedWith(before); !cmp.Equal(got, []string{"plain"}) || len(before) != len(resources)+2 {
		t.Fatalf("without a configuration %d keys are stored with %v", len(before), got)
	}
	if err := env.Stop(0); err != nil {
		t.Fatal(err)
	}

	options, file := env.Options(t), filepath.Join(t.TempDir(), "encryption.yaml")
	encryptWith(t, file, "key1")
	options.Recommended.Etcd.EncryptionProviderConfigFilepath = file
	server := env.Serve(t, options, harness.Run)
	w.admin = env.Client(t, server, harness.Admin)
	client, err := dynamic.NewForConfig(env.Config(server, harness.Admin))
	if err != nil {
		t.Fatal(err)
	}
	// Reading changes nothing; writing encrypts.
	rewrite(ctx, t, client)
	password(w, goodPassword)
	history(w)
	after := everyStored(ctx, t, env)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("encryption moved keys (-want +got):\n%s", diff)
	}
	for key, value := range after {
		if keyOf(value) != "key1" || bytes.Contains(value, []byte("argon2id")) || bytes.Contains(value, []byte("apiVersion")) || bytes.Contains(value, []byte("metadata")) {
			t.Errorf("%s is stored as %.60q", key, value)
		}
	}

	// A second key is put first: the server takes it without a restart, and reads what the first one wrote.
	encryptWith(t, file, "key2", "key1")
	eventually(t, "new bytes are written with the new key", func() bool {
		alice, err := w.admin.IchorV1alpha1().IchorUsers().Get(ctx, "alice", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("read while keys are rotated: %v", err)
		}
		if _, err := w.admin.IchorV1alpha1().IchorUsers().Update(ctx, alice, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("write while keys are rotated: %v", err)
		}
		return keyOf(everyStored(ctx, t, env)["/ichorusers/alice"]) == "key2"
	})
	if got := encryptedWith(everyStored(ctx, t, env)); !cmp.Equal(got, []string{"key1", "key2"}) {
		t.Errorf("in the middle of a rotation bytes are stored with %v", got)
	}
	rewrite(ctx, t, client)
	password(w, goodPassword)
	history(w)
	if got := encryptedWith(everyStored(ctx, t, env)); !cmp.Equal(got, []string{"key2"}) {
		t.Errorf("after all was written again, bytes are stored with %v", got)
	}

	// The first key is taken away; nothing needs it any more. A cache would hide what can't be read, so another server reads.
	encryptWith(t, file, "key2")
	fresh := env.Options(t)
	fresh.Recommended.Etcd.EncryptionProviderConfigFilepath = file
	last := env.Serve(t, fresh, harness.Run)
	for resource := range stored {
		body, err := env.Client(t, last, harness.Admin).IchorV1alpha1().RESTClient().Get().AbsPath(group, resource).Do(ctx).Raw()
		if err != nil || !bytes.Contains(body, []byte(`"uid"`)) {
			t.Errorf("%s without the first key: %s, %v", resource, body, err)
		}
	}
}

// A file that can't be used is no reason to store in plain.
func TestAnEncryptionConfigurationThatCantBeUsed(t *testing.T) {
	t.Parallel()
	env, dir := harness.Start(t, harness.Servers(0)), t.TempDir()
	for name, text := range map[string]string{
		"missing":   "",
		"no YAML":   "{",
		"no keys":   "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [ichorusers.ichor.maesh.dev], providers: [{aesgcm: {keys: []}}]}]\n",
		"short key": "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [ichorusers.ichor.maesh.dev], providers: [{aesgcm: {keys: [{name: a, secret: YQ==}]}}]}]\n",
	} {
		options, path := env.Options(t), filepath.Join(dir, name)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		options.Recommended.Etcd.EncryptionProviderConfigFilepath = path
		if err := harness.Run(testContext(t), options); err == nil || !strings.Contains(err.Error(), "encryption") {
			t.Errorf("%s: %v, want a refusal that speaks of encryption", name, err)
		}
	}
}
