// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/cmd/ichor-apiserver/app"
	"maesh.dev/ichor/test/apiserver/harness"
)

const clientCA, proxyCA, proxyNames = "client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names"

// What depends on the cluster is refused at the start too, before anything is served.
func TestClustersBehindWhichAServerRefusesToStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options []harness.Option
		trust   func(data map[string]string)
		want    []string
	}{
		"one CA for clients and the front proxy": {trust: func(data map[string]string) { data[proxyCA] = data[clientCA] },
			want: []string{`request-header CA "CN=client-ca" is a client CA too`, "give the front proxy a CA of its own"}},
		"one of several CAs for both": {trust: func(data map[string]string) { data[proxyCA] += data[clientCA] },
			want: []string{`"CN=client-ca" is a client CA too`}},
		"any name of the front proxy": {trust: func(data map[string]string) { data[proxyNames] = "[]" },
			want: []string{"--requestheader-allowed-names", "could name any user"}},
		"no names of the front proxy": {trust: func(data map[string]string) { delete(data, proxyNames) },
			want: []string{"--requestheader-allowed-names"}},
		"no right to follow policies": {options: []harness.Option{harness.Denied("watch mutatingadmissionpolicies", "list namespaces")},
			want: []string{"grant the server's account: list namespaces; watch mutatingadmissionpolicies.admissionregistration.k8s.io", "artifacts/install"}},
		"no right to ask what somebody may": {options: []harness.Option{harness.Denied("create subjectaccessreviews")},
			want: []string{"create subjectaccessreviews.authorization.k8s.io"}},
		"no right to follow the CAs": {options: []harness.Option{harness.Denied("watch configmaps")},
			want: []string{"watch configmaps kube-system/extension-apiserver-authentication"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := harness.Start(t, append(tc.options, harness.Servers(0))...)
			if tc.trust != nil {
				env.Kube.Trust(tc.trust)
			}
			options := env.Options(t)
			options.RightsPatience = 10 * time.Millisecond
			err := app.Run(testContext(t), options)
			for _, words := range tc.want {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("%v, want a refusal with %q", err, words)
				}
			}
		})
	}
}

func TestAClientCAFromAFileIsComparedToo(t *testing.T) {
	t.Parallel()
	env := harness.Start(t, harness.Servers(0))
	options := env.Options(t)
	path := filepath.Join(t.TempDir(), "ca.crt")
	env.Kube.Trust(func(data map[string]string) {
		if err := os.WriteFile(path, []byte(data[proxyCA]), 0o600); err != nil {
			t.Error(err)
		}
	})
	options.Recommended.Authentication.ClientCert.ClientCA = path
	if err := app.Run(testContext(t), options); err == nil || !strings.Contains(err.Error(), "is a client CA too") {
		t.Errorf("%v, want a refusal", err)
	}
}

// A kube-apiserver that connects as soon as the server listens is known: if it weren't, its connection would stay
// anonymous, and every user behind it.
func TestTheFrontProxyIsKnownFromTheFirstConnectionOn(t *testing.T) {
	t.Parallel()
	env, ctx := harness.Start(t, harness.Servers(0)), testContext(t)
	env.Kube.HoldTrust() // the server's own copies of the CAs come late
	defer env.Kube.ReleaseTrust()
	w := &world{Env: env}
	server := env.Serve(t, env.Options(t), app.Run)
	if err := w.through(t, server, harness.Viewer).Get().AbsPath(group, "talosmachines").Do(ctx).Error(); err != nil {
		t.Errorf("list through the front proxy: %v", err)
	}
	if err := w.through(t, server, "nobody").Get().AbsPath(group, "talosmachines").Do(ctx).Error(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("list as who has no rights: %v, want a 403 that names him", err)
	}
}

// A rotation that makes the two CAs one while the server runs is noticed: it serves nothing but its health, which says
// why, until they are two again.
func TestCAsThatBecomeOneWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	machines := w.approver.IchorV1alpha1().TalosMachines()
	for _, fault := range []struct {
		name, words string
		change      func(data map[string]string)
	}{
		{"the client CA joins the front proxy's bundle", "is a client CA too", func(data map[string]string) { data[proxyCA] += data[clientCA] }},
		{"the front proxy's names are taken away", "--requestheader-allowed-names", func(data map[string]string) { data[proxyNames] = "[]" }},
	} {
		var before map[string]string
		w.Kube.Trust(func(data map[string]string) {
			before = map[string]string{proxyCA: data[proxyCA], proxyNames: data[proxyNames]}
			fault.change(data)
		})
		eventually(t, "requests are refused after "+fault.name, func() bool {
			_, err := machines.List(ctx, metav1.ListOptions{})
			return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), fault.words)
		})
		if err := w.raw(t).Get().AbsPath("/readyz/ichor-trust").Do(ctx).Error(); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), fault.words) {
			t.Errorf("%s: readiness says %v", fault.name, err)
		}
		if err := w.raw(t).Get().AbsPath("/livez").Do(ctx).Error(); err != nil {
			t.Errorf("%s: a restart would heal nothing, and the server isn't live: %v", fault.name, err)
		}
		w.Kube.Trust(func(data map[string]string) { data[proxyCA], data[proxyNames] = before[proxyCA], before[proxyNames] })
		eventually(t, "requests are served again after "+fault.name+" was mended", func() bool {
			_, err := machines.List(ctx, metav1.ListOptions{})
			return err == nil
		})
		if err := w.raw(t).Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			t.Errorf("after %s was mended: %v", fault.name, err)
		}
	}
}

// The manifests give the server what it asks for, and nothing that it doesn't need.
func TestTheManifestsGrantTheServerItsRights(t *testing.T) {
	t.Parallel()
	objects, err := artifacts.Install()
	if err != nil {
		t.Fatal(err)
	}
	var own rbacv1.ClusterRole
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" && object.GetName() == artifacts.APIServerName {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &own); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What the manifests bind besides. Source: Kubernetes, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.
	builtin := []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"extension-apiserver-authentication"}, Verbs: []string{"get", "list", "watch"}},
	}
	options, err := apiserver.NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	needed := options.NeededRights()
	if covered, missing := validation.Covers(append(builtin, own.Rules...), needed); !covered {
		t.Errorf("the manifests don't grant %v", missing)
	}
	for i := range needed {
		needed[i].Verbs = append(needed[i].Verbs, "get")
	}
	if covered, extra := validation.Covers(needed, own.Rules); !covered {
		t.Errorf("the manifests grant what the server doesn't need: %v", extra)
	}
}
