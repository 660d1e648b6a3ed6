// SPDX-License-Identifier: Apache-2.0

package importrules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheTableForbidsWhatPointsUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from, imports string
		forbidden     bool
	}{
		"the server's command wires the server":       {from: "cmd/ichor-apiserver/app", imports: "apiserver"},
		"the server builds on the registry":           {from: "apiserver", imports: "registry/talosmachine"},
		"the server doesn't speak to a node":          {from: "apiserver", imports: "pkg/talos", forbidden: true},
		"the server doesn't import the controller":    {from: "apiserver", imports: "controllers/machine", forbidden: true},
		"the controller doesn't import the registry":  {from: "controllers/machine", imports: "registry/slots", forbidden: true},
		"the controller uses the node client":         {from: "controllers/machine", imports: "pkg/talos"},
		"the CLI doesn't import the server":           {from: "cmd/ichor/app", imports: "apiserver", forbidden: true},
		"the CLI isn't the controller's command":      {from: "cmd/ichor/app", imports: "cmd/ichor-controller/app", forbidden: true},
		"a strategy uses the slots":                   {from: "registry/talosmachine", imports: "registry/slots"},
		"one strategy doesn't use another":            {from: "registry/talosmachine", imports: "registry/taloscluster", forbidden: true},
		"the registry's root builds each store":       {from: "registry", imports: "registry/taloscluster"},
		"a strategy renders with the pure package":    {from: "registry/talosmachine", imports: "pkg/machineconfig"},
		"a strategy doesn't use the client":           {from: "registry/talosmachine", imports: "pkg/client/clientset/versioned", forbidden: true},
		"the API's types import nothing of ours":      {from: "pkg/apis/ichor/validation", imports: "pkg/machineconfig", forbidden: true},
		"the versions of the API see each other":      {from: "pkg/apis/ichor/v1alpha1", imports: "pkg/apis/ichor"},
		"nothing imports a test package":              {from: "pkg/talos", imports: "test/hollow/access", forbidden: true},
		"a test imports anything":                     {from: "test/e2e", imports: "apiserver"},
		"an external test imports what it tests":      {from: "controllers/machine", imports: "controllers/machine"},
		"only the node client imports Talos' client":  {from: "controllers/machine", imports: "github.com/siderolabs/talos/pkg/machinery/client", forbidden: true},
		"the node client imports Talos' client":       {from: "pkg/talos", imports: "github.com/siderolabs/talos/pkg/machinery/client/config"},
		"the controller doesn't import k8s apiserver": {from: "controllers/machine", imports: "k8s.io/apiserver/pkg/server", forbidden: true},
		"the gates' language is known in one place":   {from: "controllers/operation/gates", imports: "k8s.io/apiserver/pkg/cel/environment", forbidden: true},
		"and that is below the API's types":           {from: "pkg/apis/ichor/expression", imports: "k8s.io/apiserver/pkg/cel/environment"},
		"a part that no line of the table covers":     {from: "surprise", imports: "fmt", forbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			imported := test.imports
			if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") && imported != "fmt" {
				imported = Module + "/" + imported
			}
			got := Check(Layers, Outside, []Package{{Path: Module + "/" + test.from, Imports: []string{imported}}})
			if forbidden := len(got) > 0; forbidden != test.forbidden {
				t.Errorf("%s imports %s: forbidden is %v, want %v (%v)", test.from, imported, forbidden, test.forbidden, got)
			}
		})
	}
}

func TestAViolationNamesBothPackagesAndTheReason(t *testing.T) {
	t.Parallel()
	got := Check(
		[]Layer{{Path: "low", Why: "low is at the bottom", Closed: true}, {Path: "high", May: []string{"low"}}},
		nil,
		[]Package{
			{Path: Module + "/low/a", Imports: []string{"fmt", Module + "/high", Module + "/low/b", Module + "/high"}},
			{Path: Module + "/high", Imports: []string{Module + "/low/a"}},
			{Path: "elsewhere.example/x", Imports: []string{Module + "/low/a"}},
		},
	)
	want := []Violation{
		{Package: Module + "/low/a", Import: Module + "/high", Why: "low is at the bottom"},
		{Package: Module + "/low/a", Import: Module + "/low/b", Why: "low is at the bottom"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	if got, want := got[0].String(), "maesh.dev/ichor/low/a imports maesh.dev/ichor/high: low is at the bottom"; got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
}

func TestTheImportsOfTestsAreReadToo(t *testing.T) {
	t.Parallel()
	got, err := decode(strings.NewReader(`{"ImportPath": "m/a", "Imports": ["x"], "TestImports": ["y"]}
{"ImportPath": "m/b", "XTestImports": ["z"]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{{Path: "m/a", Imports: []string{"x", "y"}}, {Path: "m/b", Imports: []string{"z"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}
