// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/openapi"
)

// Group and Version of the custom resources.
const (
	Group   = "rival.example.dev"
	Version = "v1alpha1"
)

// Definitions are the custom resource definitions of the two kinds.
func Definitions() ([]*unstructured.Unstructured, error) {
	machine, err := schemaOf(v1alpha1.TalosMachine{}.OpenAPIModelName())
	if err != nil {
		return nil, err
	}
	if err := machineRules(machine); err != nil {
		return nil, err
	}
	cluster, err := schemaOf(v1alpha1.TalosCluster{}.OpenAPIModelName())
	if err != nil {
		return nil, err
	}
	if err := clusterRules(cluster); err != nil {
		return nil, err
	}
	return []*unstructured.Unstructured{
		definition("talosmachines", "TalosMachine", machine, machineColumns, []string{".spec.approvalState", ".spec.clusterRef.name", ".spec.role", ".status.stage"}),
		definition("talosclusters", "TalosCluster", cluster, clusterColumns, nil),
	}, nil
}

type column struct{ name, kind, path string }

var (
	machineColumns = []column{
		{"Cluster", "string", ".spec.clusterRef.name"}, {"Role", "string", ".spec.role"}, {"Approval", "string", ".spec.approvalState"},
		{"Stage", "string", ".status.stage"}, {"Ready", "string", `.status.conditions[?(@.type=="Ready")].status`}, {"Address", "string", ".status.addresses[0]"},
		{"Talos", "string", ".status.talosVersion"}, {"Age", "date", ".metadata.creationTimestamp"},
	}
	clusterColumns = []column{
		{"Endpoint", "string", ".spec.controlPlane.endpoint.host"}, {"Talos", "string", ".spec.talosVersion"},
		{"Kubernetes", "string", ".spec.kubernetesVersion"}, {"Age", "date", ".metadata.creationTimestamp"},
	}
)

func definition(plural, kind string, schema map[string]any, columns []column, selectable []string) *unstructured.Unstructured {
	var printed, fields []any
	for _, c := range columns {
		printed = append(printed, map[string]any{"name": c.name, "type": c.kind, "jsonPath": c.path})
	}
	for _, path := range selectable {
		fields = append(fields, map[string]any{"jsonPath": path})
	}
	version := map[string]any{
		"name": Version, "served": true, "storage": true,
		"schema":                   map[string]any{"openAPIV3Schema": schema},
		"subresources":             map[string]any{"status": map[string]any{}},
		"additionalPrinterColumns": printed,
	}
	if fields != nil {
		version["selectableFields"] = fields
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + Group},
		"spec": map[string]any{
			"group": Group, "scope": "Cluster",
			"names":    map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []any{version},
		},
	}}
}

// machineRules are what a schema can say of machines: Ichor's defaults, and what never changes.
func machineRules(schema map[string]any) error {
	if err := with(schema, "spec", func(at map[string]any) {
		at["x-kubernetes-validations"] = []any{
			rule("self.identity == oldSelf.identity", "identity can't be changed"),
			rule("oldSelf.approvalState != 'approved' || self.approvalState == 'approved'", "an approval can't be taken back"),
			rule("oldSelf.approvalState != 'approved' || (has(self.role) == has(oldSelf.role) && (!has(self.role) || self.role == oldSelf.role) && self.clusterRef == oldSelf.clusterRef)",
				"role and cluster can't be changed once approved"),
			rule("self.approvalState != 'approved' || has(self.approval) && has(self.approval.by) && has(self.role)", "an approval has a role and says who approved"),
		}
	}); err != nil {
		return err
	}
	for path, value := range map[string]string{
		"spec.approvalState": string(v1alpha1.ApprovalPending), "spec.origin": string(v1alpha1.MachineDiscovered),
		"spec.deletionPolicy": string(v1alpha1.DeletionReset),
	} {
		if err := with(schema, path, func(at map[string]any) { at["default"] = value }); err != nil {
			return err
		}
	}
	for path, values := range map[string][]any{
		"spec.approvalState": {"pending", "approved", "rejected"}, "spec.role": {"controlplane", "worker"},
	} {
		if err := with(schema, path, func(at map[string]any) { at["enum"] = values }); err != nil {
			return err
		}
	}
	return nil
}

// clusterRules hold the limit in the one key that has both the count and the slots: whoever writes either is judged in
// the same compare-and-swap.
func clusterRules(schema map[string]any) error {
	if err := with(schema, "status.controlPlaneSlots", func(at map[string]any) { at["maxItems"] = int64(1024) }); err != nil {
		return err
	}
	schema["x-kubernetes-validations"] = []any{rule(
		"!has(self.status) || !has(self.status.controlPlaneSlots) || self.status.controlPlaneSlots.size() <= self.spec.controlPlane.count + 1",
		"no more control planes than spec.controlPlane.count + 1")}
	return nil
}

func rule(text, message string) map[string]any {
	return map[string]any{"rule": text, "message": message}
}

// with changes the schema of a field.
func with(schema map[string]any, path string, change func(map[string]any)) error {
	at := schema
	for name := range strings.SplitSeq(path, ".") {
		properties, _ := at["properties"].(map[string]any)
		next, found := properties[name].(map[string]any)
		if !found {
			return fmt.Errorf("schema has no field %s", path)
		}
		at = next
	}
	change(at)
	return nil
}

// schemaOf is the structural schema of a type: Ichor's own OpenAPI with what it refers to put in its place.
func schemaOf(model string) (map[string]any, error) {
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(refPrefix + path) })
	schema, err := resolve(definitions, model, nil)
	if err != nil {
		return nil, err
	}
	return schema, nil
}

// refPrefix marks what refers to another type.
const refPrefix = "#/"

// opaque are types that a structural schema writes in another way.
var opaque = map[string]map[string]any{
	"ObjectMeta": {"type": "object"},
	"Quantity":   {"type": "string"},
	"JSONObject": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
}

func resolve(definitions map[string]common.OpenAPIDefinition, model string, within []string) (map[string]any, error) {
	if schema, found := opaque[model[strings.LastIndex(model, ".")+1:]]; found {
		return schema, nil
	}
	if slices.Contains(within, model) {
		return nil, fmt.Errorf("type %s refers to itself", model)
	}
	found, known := definitions[model]
	if !known {
		return nil, fmt.Errorf("type %s has no OpenAPI", model)
	}
	text, err := json.Marshal(found.Schema)
	if err != nil {
		return nil, fmt.Errorf("encode schema of %s: %w", model, err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("read schema of %s: %w", model, err)
	}
	return inline(definitions, schema, append(within, model))
}

// inline resolves references, and takes out the empty defaults that OpenAPI of Go types has.
func inline(definitions map[string]common.OpenAPIDefinition, schema map[string]any, within []string) (map[string]any, error) {
	if ref, found := schema["$ref"].(string); found {
		resolved, err := resolve(definitions, strings.TrimPrefix(ref, refPrefix), within)
		if err != nil {
			return nil, err
		}
		resolved = clone(resolved)
		if description, found := schema["description"]; found && len(resolved) > 1 {
			resolved["description"] = description
		}
		return resolved, nil
	}
	delete(schema, "default")
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, found := schema[key].(map[string]any); found {
			resolved, err := inline(definitions, inner, within)
			if err != nil {
				return nil, err
			}
			schema[key] = resolved
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, inner := range properties {
		resolved, err := inline(definitions, inner.(map[string]any), within)
		if err != nil {
			return nil, err
		}
		properties[name] = resolved
	}
	return schema, nil
}

func clone(schema map[string]any) map[string]any {
	return (&unstructured.Unstructured{Object: schema}).DeepCopy().Object
}
