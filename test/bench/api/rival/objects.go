// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The accounts that the custom resources' own project would have.
const (
	// WebhookUser is the account of the webhook, of group ServiceAccounts.
	WebhookUser = "system:serviceaccount:rival-system:webhook"
	// OperatorRole and ControllerRole are ClusterRoles with what Ichor's roles of those names allow.
	OperatorRole   = "rival-operator"
	ControllerRole = "rival-controller"
	webhookRole    = "rival-webhook"
)

// GateLabel on a machine chooses the gate that judges it, so that all three can be measured side by side. A project has
// one.
const GateLabel = "gate"

// The gates.
const (
	// GateSwap takes a slot in the cluster by compare-and-swap.
	GateSwap = "swap"
	// GateCache counts in the webhook's informer.
	GateCache = "cache"
	// GateLive counts in a list that the webhook asks for each time.
	GateLive = "live"
)

// approves is what of a machine's writes the webhook and the policy see; other writes don't pay for them.
const approves = "object.spec.approvalState == 'approved' && (oldObject == null || oldObject.spec.approvalState != 'approved')"

// Roles are the accounts' rights.
func Roles() []*unstructured.Unstructured {
	role := func(name string, rules ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name}, "rules": rules,
		}}
	}
	return []*unstructured.Unstructured{
		role(OperatorRole, rights([]any{"talosmachines", "talosclusters"}, "get", "list", "watch"), rights([]any{"talosmachines"}, "update", "patch", "delete"),
			rights([]any{"talosmachines/approval"}, "approve")),
		role(ControllerRole, rights([]any{"talosmachines"}, "get", "list", "watch", "create", "delete"), rights([]any{"talosclusters"}, "get", "list", "watch"),
			rights([]any{"talosmachines/status", "talosclusters/status"}, "get", "update", "patch")),
		role(webhookRole, rights([]any{"talosmachines", "talosclusters"}, "get", "list", "watch"), rights([]any{"talosclusters/status"}, "update")),
		Binding(webhookRole, WebhookUser),
	}
}

func rights(resources []any, verbs ...any) map[string]any {
	return map[string]any{"apiGroups": []any{Group}, "resources": resources, "verbs": verbs}
}

// Binding gives a user a ClusterRole.
func Binding(role, user string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": role + "-bench"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}}
}

// Policy asks for the verb approve, inside the kube-apiserver, with its binding.
func Policy() []*unstructured.Unstructured {
	const name = "approve.rival.example.dev"
	return []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"failurePolicy":    "Fail",
				"matchConstraints": map[string]any{"resourceRules": []any{machineWrites()}},
				"matchConditions":  []any{map[string]any{"name": "approves", "expression": approves}},
				"validations": []any{
					map[string]any{
						"expression": "authorizer.group('" + Group + "').resource('talosmachines').subresource('approval').name(object.metadata.name).check('approve').allowed()",
						"message":    "needs the verb approve on talosmachines/approval",
					},
					map[string]any{"expression": "object.spec.approval.by == request.userInfo.username", "message": "spec.approval.by must be who approves"},
				},
			},
		}},
		{Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"policyName": name, "validationActions": []any{"Deny"}},
		}},
	}
}

func machineWrites() map[string]any {
	return map[string]any{
		"apiGroups": []any{Group}, "apiVersions": []any{Version}, "resources": []any{"talosmachines"},
		"operations": []any{"CREATE", "UPDATE"}, "scope": "Cluster",
	}
}

// Webhooks registers the gates, served at the URL with a certificate of the authority.
func Webhooks(url string, authority []byte) *unstructured.Unstructured {
	var hooks []any
	for _, gate := range []string{GateSwap, GateCache, GateLive} {
		hooks = append(hooks, map[string]any{
			"name":                    gate + "." + Group,
			"admissionReviewVersions": []any{"v1"}, "sideEffects": "NoneOnDryRun", "failurePolicy": "Fail", "timeoutSeconds": int64(10),
			"clientConfig":    map[string]any{"url": fmt.Sprintf("%s/%s", url, gate), "caBundle": base64.StdEncoding.EncodeToString(authority)},
			"rules":           []any{machineWrites()},
			"objectSelector":  map[string]any{"matchLabels": map[string]any{GateLabel: gate}},
			"matchConditions": []any{map[string]any{"name": "approves", "expression": approves}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "gate." + Group}, "webhooks": hooks,
	}}
}
