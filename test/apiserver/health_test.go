// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// health is a status that a controller writes, and what tools for all kinds make of it.
type health struct {
	what, status string
	want         status.Status
	// spec is changed first, as a merge patch.
	spec string
	// after is changed afterwards.
	after string
}

// conditions is a status of the current generation with conditions: type, status, type, status…
func conditions(words ...string) string {
	var list []map[string]any
	for i := 0; i < len(words); i += 2 {
		list = append(list, map[string]any{
			"type": words[i], "status": words[i+1], "reason": "Test", "message": "as a test says", "lastTransitionTime": "2026-01-01T00:00:00Z",
			"observedGeneration": currentGeneration,
		})
	}
	text, err := json.Marshal(map[string]any{"observedGeneration": currentGeneration, "conditions": list})
	if err != nil {
		panic(err) // texts and numbers always encode
	}
	return string(text)
}

// currentGeneration stands for the generation that the object has when its status is written.
const currentGeneration = 4711

const (
	current    = status.CurrentStatus
	inProgress = status.InProgressStatus
	failed     = status.FailedStatus
)

// healths are typical statuses of each kind.
var healths = map[string][]health{
	"TalosCluster": {
		{what: "new", want: inProgress},
		{what: "without secrets", status: conditions("SecretsReady", "False", "Available", "False", "EtcdHealthy", "Unknown"), want: failed},
		{what: "not up", status: conditions("SecretsReady", "True", "Available", "False", "EtcdHealthy", "Unknown"), want: inProgress},
		{what: "without quorum", status: conditions("SecretsReady", "True", "Available", "True", "EtcdHealthy", "False"), want: inProgress},
		{what: "up", status: conditions("SecretsReady", "True", "Available", "True", "EtcdHealthy", "True", "SurplusControlPlane", "False"), want: current},
		{
			what: "up, and asked for something else", status: conditions("SecretsReady", "True", "Available", "True", "EtcdHealthy", "True"),
			after: `{"spec":{"controlPlane":{"count":5}}}`, want: inProgress,
		},
	},
	"TalosMachine": {
		{what: "new", want: inProgress},
		{what: "pending", status: conditions("IdentityResolved", "True", "Ready", "False"), want: inProgress},
		{what: "of doubtful identity", status: conditions("IdentityResolved", "False"), want: failed},
		{what: "rejected", spec: `{"spec":{"approvalState":"rejected"}}`, status: conditions("Ready", "False"), want: failed},
		{what: "approved", spec: approvedSpec, want: inProgress},
		{what: "being installed", spec: approvedSpec, status: conditions("ConfigApplied", "True", "Installed", "False", "Ready", "False"), want: inProgress},
		{what: "with another certificate", spec: approvedSpec, status: conditions("FingerprintTrusted", "False", "Ready", "False"), want: failed},
		{what: "ready", spec: approvedSpec, status: conditions("FingerprintTrusted", "True", "Ready", "True"), want: current},
	},
	"TalosConfigPatch": {
		{what: "new", want: inProgress},
		{what: "being rolled out", status: conditions("Ready", "False"), want: inProgress},
		{what: "refused by a machine", status: `{"observedGeneration":4711,"machines":{"matched":2,"applied":1,"refused":1}}`, want: failed},
		{what: "on all machines", status: conditions("Ready", "True"), want: current},
		{what: "disabled", spec: `{"spec":{"disabled":true}}`, status: `{"observedGeneration":4711}`, want: current},
	},
	"TalosOperation": {
		{what: "new", want: inProgress},
		{what: "queued", status: `{"phase":"Queued"}`, want: inProgress},
		{what: "running", status: `{"phase":"Running"}`, want: inProgress},
		{what: "paused", status: `{"phase":"Paused","message":"node a doesn't drain"}`, want: failed},
		{what: "suspended", spec: `{"spec":{"suspend":true}}`, status: `{"phase":"Paused"}`, want: inProgress},
		{what: "done", status: `{"phase":"Succeeded"}`, want: current},
		{what: "failed", status: `{"phase":"Failed"}`, want: failed},
		{what: "cancelled", status: `{"phase":"Cancelled"}`, want: failed},
	},
	"TalosEtcdBackup": {
		{what: "new", want: inProgress},
		{what: "being taken", status: conditions("Progressing", "True"), want: inProgress},
		{what: "verified", status: conditions("Ready", "True", "Progressing", "False"), want: current},
		{what: "not verified", status: conditions("Ready", "False"), want: failed},
		{what: "suspended", spec: `{"spec":{"suspend":true}}`, status: `{"observedGeneration":4711}`, want: current},
	},
	"TalosStorage": {
		{what: "new", want: inProgress},
		{what: "usable", status: conditions("Ready", "True"), want: current},
		{what: "refused", status: conditions("Ready", "False"), want: failed},
		{what: "being tried", status: conditions("Ready", "Unknown"), want: inProgress},
		{what: "usable, and asked to be tried", status: conditions("Ready", "True"), after: `{"spec":{"checkRequest":"now"}}`, want: inProgress},
	},
	"MachineReclaim": {
		{what: "new", want: inProgress},
		{what: "being reset", status: `{"phase":"Resetting"}`, want: inProgress},
		{what: "done", status: `{"phase":"Succeeded"}`, want: current},
		{what: "refused", status: `{"phase":"Refused","message":"it is another machine"}`, want: failed},
		{what: "failed", status: `{"phase":"Failed"}`, want: failed},
	},
	"TalosCredentialRequest": {
		{what: "new", want: inProgress},
		{what: "issued", status: conditions("Issued", "True"), want: current},
		{what: "waiting", status: conditions("Issued", "False"), want: inProgress},
		{what: "refused", status: conditions("Issued", "False", "Failed", "True"), want: failed},
	},
	"IchorInstallation": {
		{what: "new", want: inProgress},
		{what: "being upgraded", status: conditions("Ready", "True", "Progressing", "True"), want: inProgress},
		{what: "running", status: conditions("Ready", "True", "Progressing", "False"), want: current},
		{what: "broken", status: conditions("Ready", "False", "Progressing", "False"), want: failed},
	},
	"IchorUser": {
		{what: "new", want: current},
		{what: "with a password", status: conditions("PasswordSet", "True"), want: current},
	},
}

const approvedSpec = `{"spec":{"approvalState":"approved","role":"worker"}}`

func TestToolsForAllKindsTellHowObjectsAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 0)
	client := w.dynamic(t, harness.Admin)
	if err := of(client, "TalosCluster").Delete(testContext(t), "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.finalize(t, client, "TalosCluster", "prod")
	flux, argo := fluxHealth(t), argoHealth(t)
	for kind := range resources {
		if len(healths[kind]) == 0 {
			t.Errorf("nothing is known of how a %s can be; add it to the table", kind)
		}
		for _, tc := range healths[kind] {
			object := w.stored(t, client, kind, tc)
			name := kind + " " + tc.what
			result, err := status.Compute(object)
			if err != nil || result.Status != tc.want {
				t.Errorf("%s: kstatus says %v, %v, want %s\n%v", name, result, err, tc.want, object.Object["status"])
			}
			if got := flux(t, object); got != tc.want {
				t.Errorf("%s: Flux' expressions say %s, want %s", name, got, tc.want)
			}
			if got := argo(t, object); got != tc.want {
				t.Errorf("%s: Argo CD's script says %s, want %s", name, got, tc.want)
			}
		}
	}
}

// stored is an object of the kind as the server stored it after a controller wrote its status; it is gone afterwards.
func (w *world) stored(t *testing.T, client dynamic.Interface, kind string, tc health) *unstructured.Unstructured {
	t.Helper()
	ctx := testContext(t)
	object := example(t, kind)
	if kind == "TalosMachine" {
		// Only an adopted machine can be approved without having been seen.
		if _, err := of(client, "TalosCluster").Create(ctx, example(t, "TalosCluster"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := of(client, "TalosCluster").Delete(ctx, "prod", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.finalize(t, client, "TalosCluster", "prod")
		}()
	}
	made, err := of(client, kind).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%s %s: create: %v", kind, tc.what, err)
	}
	defer func() {
		if err := of(client, kind).Delete(ctx, made.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatalf("%s %s: delete: %v", kind, tc.what, err)
		}
		w.finalize(t, client, kind, made.GetName())
	}()
	patch := func(what, body string, subresources ...string) {
		t.Helper()
		if body == "" {
			return
		}
		out, err := of(client, kind).Patch(ctx, made.GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
		if err != nil {
			t.Fatalf("%s %s: %s: %v", kind, tc.what, what, err)
		}
		made = out
	}
	var door []string
	if kind == "TalosMachine" {
		door = []string{"approval"}
	}
	patch("change the spec", tc.spec, door...)
	if tc.status != "" {
		patch("write the status", `{"status":`+generationOf(t, tc.status, made.GetGeneration())+`}`, "status")
	}
	patch("change the spec afterwards", tc.after)
	read, err := of(client, kind).Get(ctx, made.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// An operation isn't deleted while it works.
	if phase, _, err := unstructured.NestedString(read.Object, "status", "phase"); err == nil && kind == "TalosOperation" && (phase == "Running" || phase == "Paused") {
		patch("end the operation", `{"status":{"phase":"Cancelled"}}`, "status")
	}
	return read
}

// generationOf puts the generation into a status.
func generationOf(t *testing.T, text string, generation int64) string {
	t.Helper()
	var tree any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	var put func(any) any
	put = func(value any) any {
		switch v := value.(type) {
		case map[string]any:
			for name := range v {
				v[name] = put(v[name])
			}
		case []any:
			for i := range v {
				v[i] = put(v[i])
			}
		case float64:
			if v == currentGeneration {
				return generation
			}
		}
		return value
	}
	out, err := json.Marshal(put(tree))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// finalize lets go of an object that is being deleted, as the controller does.
func (w *world) finalize(t *testing.T, client dynamic.Interface, kind, name string) {
	t.Helper()
	if kind != "TalosCluster" && kind != "TalosMachine" {
		return
	}
	_, err := of(client, kind).Patch(testContext(t), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}, "finalize")
	if err != nil {
		t.Fatal(err)
	}
}

// fluxHealth judges an object by the expressions for Flux, in Flux' order.
// Source: fluxcd/pkg, runtime/cel/status_evaluator.go.
func fluxHealth(t *testing.T) func(*testing.T, *unstructured.Unstructured) status.Status {
	t.Helper()
	var kustomization struct {
		Spec struct {
			HealthCheckExprs []struct{ APIVersion, Kind, Current, InProgress, Failed string }
		}
	}
	if err := yaml.Unmarshal(artifacts.FluxHealth, &kustomization); err != nil {
		t.Fatal(err)
	}
	env, err := cel.NewEnv(cel.Variable("metadata", cel.DynType), cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	holds := func(t *testing.T, expression string, object *unstructured.Unstructured) bool {
		t.Helper()
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		out, _, err := program.ContextEval(ctx, map[string]any{"metadata": object.Object["metadata"], "spec": object.Object["spec"], "status": object.Object["status"]})
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		return out.Value() == true
	}
	return func(t *testing.T, object *unstructured.Unstructured) status.Status {
		t.Helper()
		exprs := kustomization.Spec.HealthCheckExprs
		at := slices.IndexFunc(exprs, func(e struct{ APIVersion, Kind, Current, InProgress, Failed string }) bool {
			return e.APIVersion == v1alpha1.SchemeGroupVersion.String() && e.Kind == object.GetKind()
		})
		if at < 0 {
			t.Fatalf("there is no expression for a %s", object.GetKind())
		}
		switch {
		case holds(t, exprs[at].InProgress, object):
			return inProgress
		case holds(t, exprs[at].Failed, object):
			return failed
		case holds(t, exprs[at].Current, object):
			return current
		}
		return inProgress
	}
}

// argoHealth judges an object by the script for Argo CD.
func argoHealth(t *testing.T) func(*testing.T, *unstructured.Unstructured) status.Status {
	t.Helper()
	var config struct{ Data map[string]string }
	if err := yaml.Unmarshal(artifacts.ArgoCDHealth, &config); err != nil {
		t.Fatal(err)
	}
	var customizations map[string]map[string]string
	if err := yaml.Unmarshal([]byte(config.Data["resource.customizations"]), &customizations); err != nil {
		t.Fatal(err)
	}
	script := customizations[v1alpha1.GroupName+"/*"]["health.lua"]
	if script == "" {
		t.Fatal("there is no script for the kinds of the group")
	}
	words := map[string]status.Status{"Healthy": current, "Progressing": inProgress, "Degraded": failed}
	return func(t *testing.T, object *unstructured.Unstructured) status.Status {
		t.Helper()
		state := lua.NewState()
		defer state.Close()
		state.SetContext(testContext(t))
		state.SetGlobal("obj", toLua(state, object.Object))
		if err := state.DoString(script); err != nil {
			t.Fatal(err)
		}
		result, ok := state.Get(-1).(*lua.LTable)
		if !ok {
			t.Fatalf("the script returns a %s", state.Get(-1).Type())
		}
		if _, ok := result.RawGetString("message").(lua.LString); !ok {
			t.Errorf("the script's message is a %s", result.RawGetString("message").Type())
		}
		return words[result.RawGetString("status").String()]
	}
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for name, child := range v {
			table.RawSetString(name, toLua(state, child))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, child := range v {
			table.Append(toLua(state, child))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
