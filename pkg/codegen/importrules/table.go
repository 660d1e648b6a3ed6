// SPDX-License-Identifier: Apache-2.0

package importrules

// Layers is the table of docs/architecture.md, "Rules of dependence", from the top down. The most specific
// path decides; a package that no line covers is a violation.
var Layers = []Layer{
	{Path: "test", May: []string{"apiserver", "artifacts", "cmd", "controllers", "pkg", "registry"}, Why: "tests import anything but the build's own tools"},

	{Path: "cmd/ichor-apiserver", May: []string{"apiserver", "pkg/apis", "pkg/client", "pkg/kube", "pkg/openapi"}, Why: "the server's command wires apiserver/ and nothing beside it"},
	{Path: "cmd/ichor-controller", May: append([]string{"controllers"}, library...), Why: "the controller's command wires controllers/ and nothing beside it"},
	{Path: "cmd/ichor", May: append([]string{"artifacts"}, library...), Why: "the CLI is a client of the API: it shares no code with the servers"},

	{Path: "apiserver", May: []string{"pkg/apis", "pkg/client", "pkg/kube", "pkg/openapi", "registry"}, Why: "the server never talks to a node, and shares no code with the controller and the CLI"},
	{Path: "controllers", May: library, Why: "controllers see the API through its client only"},

	{Path: "registry", Closed: true, May: []string{"pkg/apis", "pkg/machineconfig", "registry/reset", "registry/slots", "registry/standard", "registry/verbs"}, Why: "strategies and storage depend on the API's types, pure rules and the slots only"},
	{Path: "registry/slots", May: []string{"pkg/apis", "registry"}, Why: "the slots depend on the API's types only; their tests drive the whole registry, which the compiler forbids to the rest"},

	{Path: "pkg/bootstrap", May: append([]string{"artifacts"}, library...), Why: "libraries never import a server, a command or a test"},
	{Path: "pkg/talos", May: []string{"pkg/apis"}, Why: "the node client knows the API's types and no other part of Ichor"},
	{Path: "pkg/secretsbundle", May: []string{"pkg/apis", "pkg/talos"}, Why: "the secrets bundle issues the credentials that the node client takes"},
	{Path: "pkg/kube", May: []string{"pkg/apis", "pkg/client", "pkg/secretsbundle"}, Why: "reaching a cluster's Kubernetes API takes the client and the bundle only"},
	{Path: "pkg/etcdsnapshot", Why: "a file of etcd's is read without any other part of Ichor"},
	{Path: "pkg/kubernetesupgrade", May: []string{"pkg/machineconfig"}, Why: "whether Kubernetes can be upgraded is judged on what is given alone"},
	{Path: "pkg/machineconfig", May: []string{"artifacts", "pkg/apis", "pkg/secretsbundle"}, Why: "rendering is pure: the API's types, the bundle and the audit policy of the artifacts go in, bytes come out"},
	{Path: "pkg/client", May: []string{"pkg/apis"}, Why: "generated clients depend on the API's types only"},
	{Path: "pkg/openapi", May: []string{"pkg/apis"}, Why: "generated definitions depend on the API's types only"},
	{Path: "pkg/apis", Why: "the API's types import nothing of ours"},
	{Path: "pkg/codegen", May: []string{"pkg/apis", "pkg/openapi"}, Why: "generators read the API's types only"},

	{Path: "artifacts", May: []string{"pkg/apis"}, Why: "manifests are data: only their tests import anything, the API's types"},
	{Path: "build", Why: "the build's tools import nothing of ours"},
}

// library is what everything above pkg/ may use. pkg/codegen is left out: only the build runs it.
var library = []string{
	"pkg/apis", "pkg/bootstrap", "pkg/client", "pkg/etcdsnapshot", "pkg/kube", "pkg/kubernetesupgrade", "pkg/machineconfig", "pkg/secretsbundle", "pkg/talos",
}

// Outside confines what other modules offer to the parts whose business it is.
var Outside = []Confined{
	{
		Import: "github.com/siderolabs/talos/pkg/machinery/client",
		To:     []string{"pkg/talos", "test"},
		Why:    "pkg/talos is the one place that speaks to a node",
	},
	{
		// Not the client, but the file format of a talosconfig.
		Import: "github.com/siderolabs/talos/pkg/machinery/client/config",
		To:     []string{"pkg/secretsbundle", "pkg/talos", "test"},
		Why:    "a talosconfig is made from the secrets bundle and read by the node client",
	},
	{
		Import: "github.com/siderolabs/talos/pkg/machinery/api/machine",
		To:     []string{"pkg/machineconfig", "pkg/talos", "test"}, // machineconfig: Talos' rules of compatibility take a version in this form
		Why:    "pkg/talos is the one place that speaks to a node",
	},
	{
		Import: "k8s.io/apiserver",
		To:     []string{"apiserver", "artifacts", "cmd/ichor-apiserver", "registry", "test"}, // artifacts: its tests evaluate roles and audit policies
		Why:    "only the server is built on the server library",
	},
	{
		// Not the server, but the language of the gates.
		Import: "k8s.io/apiserver/pkg/cel",
		To:     []string{"apiserver", "pkg/apis/ichor/expression", "registry", "test"},
		Why:    "pkg/apis/ichor/expression is the one place that knows the language of the gates",
	},
	{
		Import: "k8s.io/apiserver/pkg/apis/cel",
		To:     []string{"apiserver", "pkg/apis/ichor/expression", "registry", "test"},
		Why:    "pkg/apis/ichor/expression is the one place that knows the language of the gates",
	},
	{
		Import: "k8s.io/client-go",
		To:     []string{"apiserver", "artifacts", "cmd", "controllers", "pkg/apis", "pkg/bootstrap", "pkg/client", "pkg/kube", "pkg/secretsbundle", "registry/ichorusers", "registry/slots", "test"},
		Why:    "strategies, the node client and rendering never talk to Kubernetes",
	},
}
