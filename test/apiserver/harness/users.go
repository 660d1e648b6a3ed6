// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// The users of the tests. A token is its user's name.
const (
	// Root is in system:masters.
	Root = "root"
	// Admin may do everything with Ichor's resources.
	Admin = "admin"
	// Approver may write everything, and approve and remove machines.
	Approver = "approver"
	// Writer has all of Kubernetes' verbs on every resource and subresource, and none of Ichor's own.
	Writer = "writer"
	// Viewer may read, and ask what a patch would do.
	Viewer = "viewer"
	// Patcher may write patches and ask what they would do, and read no machine's configuration.
	Patcher = "patcher"
	// Controller has the rights of Ichor's controller.
	Controller = "controller"
	// Impersonator may act as the approver, and has no right besides.
	Impersonator = "impersonator"
	// ApproverOfOne followed by a machine's name is who may approve that machine only.
	ApproverOfOne = "approver-of-"
)

var (
	reading = []string{"get", "list", "watch"}
	writing = []string{"create", "update", "patch", "delete", "deletecollection"}
)

// Allowed is the table of who may do what.
func Allowed(user string, a *authorizationv1.ResourceAttributes) bool {
	if a == nil {
		return slices.Contains([]string{Admin, Approver, Writer, Viewer, Controller}, user) // discovery and OpenAPI
	}
	if user == Impersonator {
		return strings.HasPrefix(a.Verb, "impersonate") && a.Name == Approver
	}
	if a.Group != "ichor.maesh.dev" {
		return false
	}
	name, ofOne := strings.CutPrefix(user, ApproverOfOne)
	standard := slices.Contains(reading, a.Verb) || slices.Contains(writing, a.Verb)
	switch {
	case user == Admin:
		return true
	case user == Approver:
		return standard || a.Verb == "approve" || a.Verb == "remove"
	case user == Writer:
		return standard
	case user == Viewer:
		return slices.Contains(reading, a.Verb) || a.Resource == "talosconfigpatches" && a.Subresource == "preview" && a.Verb == "create"
	case user == Patcher:
		return standard && a.Resource == "talosconfigpatches"
	case user == Controller:
		return controllerAllowed(a)
	case ofOne:
		return standard || a.Verb == "approve" && a.Resource == "talosmachines" && a.Subresource == "approval" && a.Name == name
	}
	return false
}

func controllerAllowed(a *authorizationv1.ResourceAttributes) bool {
	switch a.Subresource {
	case "":
		return slices.Contains(reading, a.Verb) || a.Resource == "talosmachines" && (a.Verb == "create" || a.Verb == "delete")
	case "status", "finalize":
		return a.Verb == "update" || a.Verb == "patch"
	case "history":
		return a.Verb == "create" && a.Resource == "talosmachines"
	}
	return false
}
