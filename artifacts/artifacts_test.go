// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// decode turns an object into its type and refuses fields that the type doesn't have.
func decode(t *testing.T, object *unstructured.Unstructured) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, apiregistrationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	data, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	typed, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

func install(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := artifacts.Install()
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// rules returns the rules of a Role or ClusterRole of the folder install.
func rules(t *testing.T, kind, name string) []rbacv1.PolicyRule {
	t.Helper()
	for _, object := range install(t) {
		if object.GetKind() != kind || object.GetName() != name {
			continue
		}
		switch role := decode(t, object).(type) {
		case *rbacv1.ClusterRole:
			return role.Rules
		case *rbacv1.Role:
			return role.Rules
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// verbs are the verbs that rules give on a resource of group ichor.maesh.dev, sorted.
func verbs(all []rbacv1.PolicyRule, resource string) []string {
	out := []string{}
	for _, rule := range all {
		if slices.Contains(rule.APIGroups, v1alpha1.GroupName) && slices.Contains(rule.Resources, resource) {
			out = append(out, rule.Verbs...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestEveryManifestIsOfItsType(t *testing.T) {
	t.Parallel()
	examples, err := artifacts.Examples()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range append(install(t), examples...) {
		decode(t, object)
	}
}

func TestNamespaceComesFirstAndAPIServiceLast(t *testing.T) {
	t.Parallel()
	objects := install(t)
	if got := objects[0].GetKind(); got != "Namespace" {
		t.Errorf("first object is a %s, want the Namespace", got)
	}
	if got := objects[len(objects)-1].GetName(); got != artifacts.APIServiceName {
		t.Errorf("last object is %s, want %s", got, artifacts.APIServiceName)
	}
}

func TestControllerCanChangeNoSpec(t *testing.T) {
	t.Parallel()
	controller := rules(t, "ClusterRole", "ichor-controller")
	want := map[string][]string{
		"talosclusters":              {"get", "list", "watch"},
		"talosclusters/status":       {"get", "patch", "update"},
		"talosclusters/finalize":     {"patch", "update"},
		"talosmachines":              {"create", "delete", "get", "list", "watch"},
		"talosmachines/status":       {"get", "patch", "update"},
		"talosmachines/finalize":     {"patch", "update"},
		"talosconfigpatches":         {"get", "list", "watch"},
		"talosconfigpatches/status":  {"get", "patch", "update"},
		"talosconfigpatches/preview": {},
		"talosmachines/history":      {"create"},
		"talosmachines/approval":     {},
		"talosmachines/identity":     {},
		"talosmachines/removal":      {},
		"talosclusters/cni":          {},
	}
	got := map[string][]string{}
	for resource := range want {
		got[resource] = verbs(controller, resource)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the controller (-want +got):\n%s", diff)
	}
}

func TestControllerWritesOnlySecretsAndAPIServicesByName(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	for _, rule := range slices.Concat(rules(t, "ClusterRole", "ichor-controller"), rules(t, "Role", "ichor-controller")) {
		for _, resource := range rule.Resources {
			if resource == "secrets" || resource == "apiservices" {
				names := resource + " " + strings.Join(rule.ResourceNames, " ")
				got[names] = append(got[names], rule.Verbs...)
			}
		}
	}
	want := map[string][]string{
		"secrets ":                     {"get", "create"},
		"secrets ichor-apiserver-etcd": {"update"},
		"secrets ichor-apiserver-ca ichor-apiserver-tls": {"list", "watch", "update"},
		"apiservices v1alpha1.ichor.maesh.dev":           {"get", "list", "watch", "update"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the controller on Secrets and APIServices (-want +got):\n%s", diff)
	}
}

func TestControllerApprovesServingCertificatesOfKubeletsAndNoOthers(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	for _, object := range install(t) {
		if !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		for _, rule := range rules(t, object.GetKind(), object.GetName()) {
			if !slices.Contains(rule.APIGroups, "certificates.k8s.io") {
				continue
			}
			for _, resource := range rule.Resources {
				of := strings.TrimSpace(strings.Join([]string{object.GetName(), resource, strings.Join(rule.ResourceNames, " ")}, " "))
				got[of] = append(got[of], rule.Verbs...)
			}
		}
	}
	want := map[string][]string{
		"ichor-controller certificatesigningrequests":            {"get", "list", "watch"},
		"ichor-controller certificatesigningrequests/approval":   {"update"},
		"ichor-controller signers kubernetes.io/kubelet-serving": {"approve"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights on certificate signing requests (-want +got):\n%s", diff)
	}
}

func TestControllerDrainsAndChangesNothingElseOfWhatRuns(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	for _, rule := range rules(t, "ClusterRole", artifacts.ControllerName) {
		for _, path := range rule.NonResourceURLs {
			got[path] = rule.Verbs
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group == v1alpha1.GroupName || group == "certificates.k8s.io" || resource == "apiservices" {
					continue // tests of their own
				}
				got[strings.TrimPrefix(group+"/"+resource, "/")] = rule.Verbs
			}
		}
	}
	want := map[string][]string{
		"nodes":                            {"get", "list", "watch", "patch", "delete"},
		"pods":                             {"list", "delete"},
		"pods/eviction":                    {"create"},
		"apps/daemonsets":                  {"get"},
		"policy/poddisruptionbudgets":      {"list"},
		"persistentvolumeclaims":           {"get"},
		"storage.k8s.io/volumeattachments": {"list"},
		"/metrics":                         {"get"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the controller on what runs in the cluster (-want +got):\n%s", diff)
	}
}

func TestGatesSeeWhatAnAdministratorAdds(t *testing.T) {
	t.Parallel()
	bound := map[string]bool{}
	for _, object := range install(t) {
		switch typed := decode(t, object).(type) {
		case *rbacv1.ClusterRole:
			if typed.Name != "ichor-controller-gates" {
				continue
			}
			// Rules here would fight with those that kube-controller-manager writes.
			if _, found := object.Object["rules"]; found || typed.AggregationRule == nil {
				t.Errorf("%s has rules of its own: %v", typed.Name, typed.Rules)
			}
			want := []metav1.LabelSelector{{MatchLabels: map[string]string{"ichor.maesh.dev/aggregate-to-gates": "true"}}}
			if diff := cmp.Diff(want, typed.AggregationRule.ClusterRoleSelectors); diff != "" {
				t.Errorf("what is added (-want +got):\n%s", diff)
			}
		case *rbacv1.ClusterRoleBinding:
			bound[typed.RoleRef.Name] = true
		case *rbacv1.RoleBinding:
			bound[typed.RoleRef.Name] = true
		}
	}
	if !bound["ichor-controller-gates"] {
		t.Error("ichor-controller-gates isn't bound")
	}
	if bound["ichor-controller-gate-jobs"] {
		t.Error("ichor-controller-gate-jobs is bound: whoever may create operations could run any CronJob there")
	}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"batch"}, Resources: []string{"cronjobs"}, Verbs: []string{"get"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "create"}},
	}
	if diff := cmp.Diff(want, rules(t, "ClusterRole", "ichor-controller-gate-jobs")); diff != "" {
		t.Errorf("rights for Jobs (-want +got):\n%s", diff)
	}
}

func TestOnlyThoseWhoShouldHoldEachVerb(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, resource, verb     string
		viewer, operator, admins bool
	}{
		{"look at machines", "talosmachines", "list", true, true, true},
		{"look at clusters", "talosclusters", "watch", true, true, true},
		{"approve a machine", "talosmachines/approval", "approve", false, true, true},
		{"write an approval", "talosmachines/approval", "patch", false, true, true},
		{"resolve an identity", "talosmachines/identity", "update", false, true, true},
		{"remove an approved machine", "talosmachines/removal", "remove", false, true, true},
		{"change a cluster", "talosclusters", "patch", false, true, true},
		{"delete a machine's object", "talosmachines", "delete", false, true, true},
		{"make a cluster", "talosclusters", "create", false, false, true},
		{"delete a cluster", "talosclusters", "delete", false, false, true},
		{"change the network plugin", "talosclusters/cni", "configure", false, false, true},
		{"look at users", "ichorusers", "list", true, true, true},
		{"start an operation", "talosoperations", "create", false, true, true},
		{"resume an operation", "talosoperations/resume", "update", false, true, true},
		{"cancel an operation", "talosoperations/cancel", "update", false, true, true},
		{"reclaim a machine", "machinereclaims", "create", false, true, true},
		{"ask for a certificate", "taloscredentialrequests", "create", false, true, true},
		{"ask what a patch would do", "talosconfigpatches/preview", "create", true, true, true},
		{"change what runs on every node", "talosconfigpatches", "create", false, false, true},
		{"carry etcd away", "talosetcdbackups", "create", false, false, true},
		{"say where backups go", "talosstorages", "update", false, false, true},
		{"change Ichor itself", "ichorinstallations", "update", false, false, true},
		{"make a user", "ichorusers", "create", false, false, true},
		{"set a password", "ichorusers/password", "update", false, false, true},
		{"ask for a user's certificate", "ichorusers/certificate", "update", false, false, true},
		{"write status", "talosmachines/status", "update", false, false, false},
		{"write an operation's status", "talosoperations/status", "update", false, false, false},
		{"take a finalizer away", "talosmachines/finalize", "update", false, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for role, want := range map[string]bool{
				artifacts.RoleViewer: test.viewer, artifacts.RoleOperator: test.operator, artifacts.RoleAdmin: test.admins,
			} {
				if got := slices.Contains(verbs(rules(t, "ClusterRole", role), test.resource), test.verb); got != want {
					t.Errorf("%s may %s %s: %v, want %v", role, test.verb, test.resource, got, want)
				}
			}
		})
	}
}

func TestWhichTalosRolesEachMayAskFor(t *testing.T) {
	t.Parallel()
	for role, want := range map[string][]string{
		artifacts.RoleViewer:       {},
		"ichor-viewer-credentials": {"os:reader"},
		artifacts.RoleOperator:     {"os:etcd:backup", "os:operator", "os:reader"},
		artifacts.RoleAdmin:        {"os:admin", "os:etcd:backup", "os:operator", "os:reader"},
	} {
		got := []string{}
		for _, rule := range rules(t, "ClusterRole", role) {
			if !slices.Contains(rule.Resources, "taloscredentialrequests/role") {
				continue
			}
			if len(rule.ResourceNames) == 0 {
				t.Errorf("%s may ask for every role", role)
			}
			got = append(got, rule.ResourceNames...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
	}
}

func TestNoRoleHoldsAWildcard(t *testing.T) {
	t.Parallel()
	for _, object := range install(t) {
		if !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		for _, rule := range rules(t, object.GetKind(), object.GetName()) {
			if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
				t.Errorf("%s %s: wildcard in %v", object.GetKind(), object.GetName(), rule)
			}
		}
	}
}

func TestAuditPolicies(t *testing.T) {
	t.Parallel()
	operator := &user.DefaultInfo{Name: "operator", Groups: []string{"system:authenticated"}}
	controller := &user.DefaultInfo{Name: "system:serviceaccount:ichor-system:ichor-controller", Groups: []string{"system:serviceaccounts"}}
	approval := authorizer.AttributesRecord{
		User: operator, Verb: "patch", APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "talosmachines", Subresource: "approval",
		Name: "m", ResourceRequest: true, Path: "/apis/ichor.maesh.dev/v1alpha1/talosmachines/m/approval",
	}
	with := func(change func(*authorizer.AttributesRecord)) authorizer.AttributesRecord {
		changed := approval
		change(&changed)
		return changed
	}
	tests := []struct {
		name       string
		policy     []byte
		attributes authorizer.AttributesRecord
		want       auditinternal.Level
	}{
		{"kube-apiserver: an approval", artifacts.KubeAPIServerAuditPolicy, approval, auditinternal.LevelMetadata},
		{"kube-apiserver: a person looks", artifacts.KubeAPIServerAuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.Verb, a.Subresource = "get", "" }), auditinternal.LevelMetadata},
		{"kube-apiserver: the controller watches", artifacts.KubeAPIServerAuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.User, a.Verb, a.Subresource = controller, "watch", "" }), auditinternal.LevelNone},
		{"kube-apiserver: the controller tries to approve", artifacts.KubeAPIServerAuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.User = controller }), auditinternal.LevelMetadata},
		{"kube-apiserver: the controller enters a machine", artifacts.KubeAPIServerAuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.User, a.Verb, a.Subresource = controller, "create", "" }), auditinternal.LevelMetadata},
		{"kube-apiserver: a Secret is made", artifacts.KubeAPIServerAuditPolicy,
			with(func(a *authorizer.AttributesRecord) {
				a.Verb, a.APIGroup, a.Resource, a.Subresource = "create", "", "secrets", ""
			}),
			auditinternal.LevelMetadata},
		{"kube-apiserver: health", artifacts.KubeAPIServerAuditPolicy,
			authorizer.AttributesRecord{User: operator, Verb: "get", Path: "/readyz"}, auditinternal.LevelNone},
		{"ichor-apiserver: an approval, with its body", artifacts.AuditPolicy, approval, auditinternal.LevelRequestResponse},
		{"ichor-apiserver: a resolved identity, with its body", artifacts.AuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.Subresource = "identity" }), auditinternal.LevelRequestResponse},
		{"ichor-apiserver: a change of a cluster", artifacts.AuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.Resource, a.Subresource = "talosclusters", "" }), auditinternal.LevelMetadata},
		{"ichor-apiserver: a password, never with its body", artifacts.AuditPolicy,
			with(func(a *authorizer.AttributesRecord) {
				a.Verb, a.Resource, a.Subresource = "update", "ichorusers", "password"
			}), auditinternal.LevelMetadata},
		{"ichor-apiserver: an operation is cancelled, with its body", artifacts.AuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.Resource, a.Subresource = "talosoperations", "cancel" }), auditinternal.LevelRequestResponse},
		{"ichor-apiserver: status", artifacts.AuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.User, a.Subresource = controller, "status" }), auditinternal.LevelNone},
		{"ichor-apiserver: a person looks", artifacts.AuditPolicy,
			with(func(a *authorizer.AttributesRecord) { a.Verb, a.Subresource = "list", "" }), auditinternal.LevelNone},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			loaded, err := policy.LoadPolicyFromBytes(test.policy)
			if err != nil {
				t.Fatal(err)
			}
			got := policy.NewPolicyRuleEvaluator(loaded).EvaluatePolicyRule(test.attributes).Level
			if got != test.want {
				t.Errorf("level %s, want %s", got, test.want)
			}
		})
	}
}
