// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/apiserver/harness"
)

// allVerbs are Kubernetes' and Ichor's own.
var allVerbs = []string{
	"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"approve", "remove", "configure", "request", "use", "bind", "escalate", "impersonate", "proxy",
}

// asked are resources that nothing serves: the server asks for a verb on them.
var asked = map[string][]string{
	"talosmachines/removal":        nil,
	"talosclusters/cni":            nil,
	"taloscredentialrequests/role": {"os:reader", "os:operator", "os:etcd:backup", "os:admin", "os:impersonator"},
}

// rolesOf are the roles of the manifests: all rules, and the built-in roles that each is part of.
func rolesOf(t *testing.T) (rules map[string][]rbacv1.PolicyRule, parts map[string][]string) {
	t.Helper()
	objects, err := artifacts.Install()
	if err != nil {
		t.Fatal(err)
	}
	rules, parts = map[string][]rbacv1.PolicyRule{}, map[string][]string{}
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
			continue
		}
		var role rbacv1.ClusterRole // the rules of a Role are in the same place
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		name := role.Name
		if role.Namespace != "" {
			name += " in " + role.Namespace
		}
		rules[name] = role.Rules
		for _, builtin := range []string{"view", "edit", "admin"} {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+builtin] == "true" {
				parts[builtin] = append(parts[builtin], name)
			}
		}
	}
	// Kubernetes makes edit of what is labelled for it and of view, and admin of what is labelled for it and of edit.
	// Source: Kubernetes, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.
	parts["edit"] = append(parts["edit"], parts["view"]...)
	parts["admin"] = append(parts["admin"], parts["edit"]...)
	for builtin, names := range parts {
		for _, name := range names {
			rules["Kubernetes' "+builtin] = append(rules["Kubernetes' "+builtin], rules[name]...)
		}
	}
	return rules, parts
}

// may are the verbs that rules give on a resource, each as a real authorizer decides.
func may(rules []rbacv1.PolicyRule, group, resource, name string) []string {
	var verbs []string
	for _, verb := range allVerbs {
		wanted := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
		if name != "" {
			wanted.ResourceNames = []string{name}
		}
		if covered, _ := validation.Covers(rules, []rbacv1.PolicyRule{wanted}); covered {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// The table says for every resource and subresource that is served what each role may do with it, every verb. What is
// served and not in the table, and what changes, fails: read the difference, then write the table anew with -update.
func TestWhatEachRoleMayDo(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	list, err := env.Client(t, 0, harness.Admin).Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	rules, _ := rolesOf(t)
	names := slices.Sorted(maps.Keys(rules))
	var table strings.Builder
	row := func(group, resource, object string) {
		title := resource
		if object != "" {
			title += " named " + object
		}
		fmt.Fprintf(&table, "%s\n", title)
		for _, name := range names {
			if verbs := may(rules[name], group, resource, object); len(verbs) > 0 {
				fmt.Fprintf(&table, "    %-28s %s\n", name, strings.Join(verbs, " "))
			}
		}
	}
	var served []string
	for _, resource := range list.APIResources {
		served = append(served, resource.Name)
		for _, verb := range resource.Verbs {
			if !slices.Contains(allVerbs, verb) {
				t.Errorf("%s is served with verb %s, which the table doesn't ask for", resource.Name, verb)
			}
		}
	}
	slices.Sort(served)
	for _, resource := range served {
		row(v1alpha1.GroupName, resource, "")
	}
	for _, resource := range slices.Sorted(maps.Keys(asked)) {
		row(v1alpha1.GroupName, resource, "")
		for _, object := range asked[resource] {
			row(v1alpha1.GroupName, resource, object)
		}
	}
	for _, other := range []struct{ group, resource string }{{"", "secrets"}, {"", "configmaps"}, {"", "nodes"}, {"", "namespaces"}, {"", "pods/exec"}, {"rbac.authorization.k8s.io", "clusterroles"}} {
		row(other.group, other.resource, "")
	}
	path := filepath.Join("testdata", "roles.txt")
	if *update {
		if err := os.WriteFile(path, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(table.String(), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// What no table that is written anew may change.
func TestWhatNoRoleMayDo(t *testing.T) {
	t.Parallel()
	rules, parts := rolesOf(t)
	if diff := cmp.Diff(map[string][]string{"view": {artifacts.RoleViewer}, "edit": {artifacts.RoleViewer}, "admin": {artifacts.RoleViewer}}, parts); diff != "" {
		t.Errorf("parts of Kubernetes' own roles (-want +got):\n%s", diff)
	}
	for role, all := range rules {
		people := !strings.HasPrefix(role, artifacts.ControllerName) && !strings.HasPrefix(role, artifacts.APIServerName)
		if people && len(may(all, "", "secrets", "")) > 0 {
			t.Errorf("%s reads Secrets", role)
		}
		if verbs := may(all, v1alpha1.GroupName, "talosmachines/approval", ""); slices.Contains(verbs, "approve") != (role == artifacts.RoleOperator || role == artifacts.RoleAdmin) {
			t.Errorf("%s may %v approvals", role, verbs)
		}
		for _, verb := range may(all, v1alpha1.GroupName, "talosmachines/status", "") {
			if people && verb != "get" {
				t.Errorf("%s may %s what the controller observes", role, verb)
			}
		}
		for _, resource := range []string{"talosmachines/finalize", "talosclusters/finalize"} {
			if verbs := may(all, v1alpha1.GroupName, resource, ""); people && len(verbs) > 0 {
				t.Errorf("%s may %v %s", role, verbs, resource)
			}
		}
		for _, verb := range []string{"bind", "escalate", "impersonate", "proxy"} {
			for _, rule := range all {
				if slices.Contains(rule.Verbs, verb) {
					t.Errorf("%s may %s: %v", role, verb, rule)
				}
			}
		}
	}
	for _, verb := range []string{"update", "patch"} {
		for _, resource := range []string{"talosclusters", "talosmachines"} {
			if slices.Contains(may(rules[artifacts.ControllerName], v1alpha1.GroupName, resource, ""), verb) {
				t.Errorf("the controller may %s the main resource %s", verb, resource)
			}
		}
	}
}
