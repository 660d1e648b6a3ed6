// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/apiserver/harness"
)

// TestAnApprovalByServerSideApply approves as kubectl apply --server-side --subresource=approval does, twice, and looks
// at who owns what.
func TestAnApprovalByServerSideApply(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	body := fmt.Appendf(nil, `{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosMachine","metadata":{"name":%q},"spec":{"approvalState":"approved","role":"worker",
		"approval":{"maintenanceFingerprint":%q,"by":"nobody"},"disks":[{"match":{"serial":"S1"},"role":"system"}],"nodeLabels":{"rack":"1"}}}`, machineUUID(0), fingerprintOf(0, 0))
	apply := func() *v1alpha1.TalosMachine {
		t.Helper()
		got, err := w.approver.IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(0), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "gitops", Force: new(true)}, "approval")
		if err != nil {
			t.Fatalf("apply: %v", err)
		}
		return got
	}
	first := apply()
	if first.Spec.ApprovalState != v1alpha1.ApprovalApproved || first.Spec.Approval.By != harness.Approver || first.Spec.NodeLabels["rack"] != "1" {
		t.Errorf("applied: %+v, %+v", first.Spec, first.Spec.Approval)
	}
	if again := apply(); again.ResourceVersion != first.ResourceVersion {
		t.Errorf("applied again, the machine moves from %s to %s", first.ResourceVersion, again.ResourceVersion)
	}
	for _, entry := range first.ManagedFields {
		if owned := entry.FieldsV1.GetRawString(); entry.Manager == "gitops" && (strings.Contains(owned, `"f:by"`) || !strings.Contains(owned, `"f:role"`) || entry.Subresource != "approval") {
			t.Errorf("the applier owns %s through %q", owned, entry.Subresource)
		}
	}
}

func TestWhoWritesADecisionToTheMainResourceIsToldThatItStays(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 1), testContext(t)
	var warnings warningList
	config := w.Config(0, harness.Approver)
	config.WarningHandler = &warnings
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.IchorV1alpha1().TalosMachines().Patch(ctx, machineUUID(0), types.MergePatchType, []byte(`{"spec":{"role":"worker","locked":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"spec.role: stays as it is; only talosmachines/approval changes it"}; !slices.Equal(warnings.all(), want) {
		t.Errorf("warnings %q, want %q", warnings.all(), want)
	}
}

// TestWhatExplainPrints compares the fields, types and list keys of the served schema with a golden file: what people's
// manifests and server-side apply depend on.
func TestWhatExplainPrints(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, 1, 0), testContext(t)
	body, err := w.raw(t).Get().AbsPath("/openapi/v3" + group).DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, kind := range []string{"TalosCluster", "TalosMachine"} {
		for name, s := range document.Components.Schemas {
			if strings.HasSuffix(name, "."+kind) {
				fmt.Fprintf(&out, "%s\n", kind)
				s.print(&out, document.Components.Schemas, "  ")
			}
		}
	}
	golden(t, "../openapi/fields.txt", []byte(out.String()))
}

// schema is what is compared of an OpenAPI schema.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 string
	Description          string
	Properties           map[string]schema
	Required             []string
	Items                *schema
	AllOf                []schema
	AdditionalProperties *schema
	ListType             string   `json:"x-kubernetes-list-type"`
	ListKeys             []string `json:"x-kubernetes-list-map-keys"`
	Unknown              bool     `json:"x-kubernetes-preserve-unknown-fields"`
}

func (s schema) resolve(all map[string]schema) schema {
	ref := s.Ref
	if len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref
	}
	if ref == "" {
		return s
	}
	target := all[strings.TrimPrefix(ref, "#/components/schemas/")]
	target.ListType, target.ListKeys = s.ListType, s.ListKeys
	return target
}

func (s schema) print(out *strings.Builder, all map[string]schema, indent string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if name == "metadata" {
			continue // Kubernetes' own
		}
		p := s.Properties[name].resolve(all)
		line := indent + name + " " + p.Type
		if p.Description == "" && s.Properties[name].Description == "" {
			line += " UNDOCUMENTED"
		}
		if slices.Contains(s.Required, name) {
			line += " required"
		}
		if p.ListType != "" {
			line += strings.TrimRight(" list="+p.ListType+" "+strings.Join(p.ListKeys, ","), " ")
		}
		if p.Unknown {
			line += " any fields"
		}
		fmt.Fprintln(out, line)
		switch {
		case p.Items != nil:
			p.Items.resolve(all).print(out, all, indent+"  ")
		default:
			p.print(out, all, indent+"  ")
		}
	}
}
