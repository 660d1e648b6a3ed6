// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// auditLevels says what the policy of the manifests keeps of a write to each served resource: "" for nothing.
var auditLevels = map[string]auditv1.Level{
	"talosclusters": auditv1.LevelMetadata, "talosclusters/status": "", "talosclusters/finalize": auditv1.LevelMetadata,
	"talosmachines": auditv1.LevelMetadata, "talosmachines/status": "", "talosmachines/finalize": auditv1.LevelMetadata,
	"talosmachines/config": auditv1.LevelMetadata, "talosmachines/drift": auditv1.LevelMetadata, "talosmachines/log": auditv1.LevelMetadata,
	"talosmachines/history":  auditv1.LevelMetadata,
	"talosmachines/approval": auditv1.LevelRequestResponse, "talosmachines/identity": auditv1.LevelRequestResponse,
	"talosconfigpatches": auditv1.LevelMetadata, "talosconfigpatches/status": "", "talosconfigpatches/preview": auditv1.LevelMetadata,
	"talosoperations": auditv1.LevelMetadata, "talosoperations/status": "",
	"talosoperations/resume": auditv1.LevelRequestResponse, "talosoperations/cancel": auditv1.LevelRequestResponse,
	"talosetcdbackups": auditv1.LevelMetadata, "talosetcdbackups/status": "",
	"talosstorages": auditv1.LevelMetadata, "talosstorages/status": "",
	"machinereclaims": auditv1.LevelMetadata, "machinereclaims/status": "",
	"taloscredentialrequests": auditv1.LevelMetadata, "taloscredentialrequests/status": "",
	"ichorinstallations": auditv1.LevelMetadata, "ichorinstallations/status": "",
	"ichorusers": auditv1.LevelMetadata, "ichorusers/status": "",
	"ichorusers/password": auditv1.LevelMetadata, "ichorusers/certificate": auditv1.LevelMetadata,
}

// auditEvents reads a log, by Audit-ID.
func auditEvents(t *testing.T, log string) map[types.UID]auditv1.Event {
	t.Helper()
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	events := map[types.UID]auditv1.Event{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("line of the audit log: %v", err)
		}
		events[event.AuditID] = event
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}

// TestTheAuditPolicyOverEveryResource writes to every resource and subresource that is served, through the front proxy as
// the kube-apiserver does, and reads the log.
func TestTheAuditPolicyOverEveryResource(t *testing.T) {
	t.Parallel()
	env, ctx, dir := harness.Start(t, harness.Servers(0)), testContext(t), t.TempDir()
	log, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, artifacts.AuditPolicy, 0o600); err != nil {
		t.Fatal(err)
	}
	options := env.Options(t)
	options.Recommended.Audit.PolicyFile, options.Recommended.Audit.LogOptions.Path = policy, log
	server := env.Serve(t, options, harness.Run)
	w := &world{Env: env, admin: env.Client(t, server, harness.Admin)}
	proxied := w.through(t, server, harness.Admin)

	list, err := w.admin.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	created, tried := map[string]auditv1.Level{}, map[string]auditv1.Level{}
	for _, resource := range list.APIResources {
		if strings.Contains(resource.Name, "/") {
			continue
		}
		object := example(t, resource.Kind)
		names[resource.Name] = object.GetName()
		body, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		id := "create-" + resource.Name
		if err := proxied.Post().AbsPath(group, resource.Name).SetHeader("Audit-ID", id).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error(); err != nil {
			t.Fatalf("create %s: %v", resource.Name, err)
		}
		created[id] = auditv1.LevelMetadata
	}
	for _, resource := range list.APIResources {
		main, sub, _ := strings.Cut(resource.Name, "/")
		path := []string{group, main, names[main]}
		body, err := w.raw(t).Get().AbsPath(path...).Do(ctx).Raw()
		if err != nil {
			t.Fatal(err)
		}
		if sub != "" {
			path = append(path, sub)
		}
		if sub == "password" {
			body = []byte(`{"password":"` + goodPassword + `"}`)
		}
		if sub == "certificate" {
			body = []byte(strings.Replace(string(body), `"spec":{`, `"spec":{"certificateRequest":{"request":"c2VjcmV0LWNzcg=="},`, 1))
		}
		id := "write-" + main + "-" + sub
		err = proxied.Put().AbsPath(path...).SetHeader("Audit-ID", id).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		if !slices.Contains(resource.Verbs, "update") && apierrors.IsMethodNotSupported(err) {
			err = nil // is only read, or added to
		}
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) && !apierrors.IsBadRequest(err) && !apierrors.IsForbidden(err) {
			t.Errorf("write %s: %v", resource.Name, err)
		}
		level, known := auditLevels[resource.Name]
		if !known {
			t.Errorf("%s is served and has no row; say what the audit log keeps of it", resource.Name)
		}
		tried[id] = level
		if err := proxied.Get().AbsPath(path[:3]...).SetHeader("Audit-ID", "read-"+main).Do(ctx).Error(); err != nil {
			t.Errorf("read %s: %v", main, err)
		}
	}
	if err := env.Stop(server); err != nil {
		t.Error(err)
	}

	events := auditEvents(t, log)
	got, want := map[string]auditv1.Level{}, map[string]auditv1.Level{}
	for id := range created {
		tried[id] = created[id]
	}
	for id, level := range tried {
		if level != "" {
			want[id] = level
		}
		event, found := events[types.UID(id)]
		if !found {
			continue
		}
		got[id] = event.Level
		if event.User.Username != harness.Admin || event.ResponseStatus == nil {
			t.Errorf("%s: by %q, answered %v; want who asked and what was answered", id, event.User.Username, event.ResponseStatus)
		}
		if bodies := event.RequestObject != nil; bodies != (level == auditv1.LevelRequestResponse) {
			t.Errorf("%s: with a body: %t, at level %s", id, bodies, level)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events by the Audit-ID that the kube-apiserver gave (-want +got):\n%s", diff)
	}
	for id := range events {
		if strings.HasPrefix(string(id), "read-") {
			t.Errorf("a read is in the log: %s", id)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"horse", "argon2id", "c2VjcmV0LWNzcg", "managedFields", string(example(t, "TalosCredentialRequest").Object["spec"].(map[string]any)["request"].(string))[:40]} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is in the audit log", secret)
		}
	}
}

// An approval that a person gives is in the log as he gave it and as it was stored, by who he is.
func TestAnApprovalIsAuditedWithItsBodies(t *testing.T) {
	t.Parallel()
	env, ctx, dir := harness.Start(t, harness.Servers(0)), testContext(t), t.TempDir()
	log, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, artifacts.AuditPolicy, 0o600); err != nil {
		t.Fatal(err)
	}
	options := env.Options(t)
	options.Recommended.Audit.PolicyFile, options.Recommended.Audit.LogOptions.Path = policy, log
	server := env.Serve(t, options, harness.Run)
	w := &world{Env: env, admin: env.Client(t, server, harness.Admin), controller: env.Client(t, server, harness.Controller)}
	if _, err := w.admin.IchorV1alpha1().TalosClusters().Create(ctx, cluster(1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	machine := w.discover(t, 0)
	for user, want := range map[string]int32{harness.Writer: http.StatusForbidden, harness.Approver: http.StatusOK} {
		body, err := json.Marshal(approve(machine, v1alpha1.RoleWorker))
		if err != nil {
			t.Fatal(err)
		}
		status := 0
		w.through(t, server, user).Put().AbsPath(group, "talosmachines", machine.Name, "approval").SetHeader("Audit-ID", "approval-by-"+user).
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).StatusCode(&status)
		if int32(status) != want {
			t.Errorf("approval by %s: %d, want %d", user, status, want)
		}
	}
	if err := env.Stop(server); err != nil {
		t.Error(err)
	}
	events := auditEvents(t, log)
	for user, want := range map[string]int32{harness.Writer: http.StatusForbidden, harness.Approver: http.StatusOK} {
		event := events[types.UID("approval-by-"+user)]
		if event.User.Username != user || event.ResponseStatus == nil || event.ResponseStatus.Code != want || event.ObjectRef.Name != machine.Name {
			t.Errorf("approval by %s: %+v", user, event)
			continue
		}
		if event.RequestObject == nil || !strings.Contains(string(event.RequestObject.Raw), `"approvalState":"approved"`) {
			t.Errorf("approval by %s: what was asked isn't in the log", user)
		}
		if answered := event.ResponseObject != nil && strings.Contains(string(event.ResponseObject.Raw), `"by":"`+user+`"`); answered != (want == http.StatusOK) {
			t.Errorf("approval by %s: what was answered is in the log: %t", user, answered)
		}
	}
}
