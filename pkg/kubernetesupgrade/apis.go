// SPDX-License-Identifier: Apache-2.0

package kubernetesupgrade

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// API is a resource in one version of its group.
type API struct{ Group, Version, Resource string }

func (a API) String() string { return fmt.Sprintf("%s of %s/%s", a.Resource, a.Group, a.Version) }

// apiRemovals are the versions of APIs by the minor version of Kubernetes that serves them no more, from 1.32 on. Those after
// KnownUpTo are there so that what an older kube-apiserver announced, and was put off later, doesn't count. Source: Kubernetes,
// k8s.io/api v0.37.2, APILifecycleRemoved in zz_generated.prerelease-lifecycle.go of each group; a test holds the table to it.
var apiRemovals = []struct {
	minor          uint
	group, version string
	resources      []string
}{
	{32, "admissionregistration.k8s.io", "v1alpha1", []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}},
	{32, "authentication.k8s.io", "v1alpha1", []string{"selfsubjectreviews"}},
	{32, "flowcontrol.apiserver.k8s.io", "v1beta3", []string{"flowschemas", "prioritylevelconfigurations"}},
	{33, "authentication.k8s.io", "v1beta1", []string{"selfsubjectreviews"}},
	{34, "admissionregistration.k8s.io", "v1beta1", []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}},
	{35, "storage.k8s.io", "v1alpha1", []string{"volumeattributesclasses"}},
	{37, "certificates.k8s.io", "v1alpha1", []string{"clustertrustbundles"}},
	{37, "networking.k8s.io", "v1beta1", []string{"ipaddresses", "servicecidrs"}},
	{37, "storage.k8s.io", "v1beta1", []string{"volumeattributesclasses"}},
	{38, "admissionregistration.k8s.io", "v1alpha1", []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}},
	{38, "coordination.k8s.io", "v1alpha2", []string{"leasecandidates"}},
	{38, "resource.k8s.io", "v1beta1", []string{"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}},
	{39, "coordination.k8s.io", "v1beta1", []string{"leasecandidates"}},
	{39, "resource.k8s.io", "v1alpha3", []string{"devicetaintrules"}},
	{39, "resource.k8s.io", "v1beta2", []string{"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}},
	{40, "admissionregistration.k8s.io", "v1beta1", []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}},
	{40, "certificates.k8s.io", "v1beta1", []string{"clustertrustbundles", "podcertificaterequests"}},
	{40, "storagemigration.k8s.io", "v1beta1", []string{"storageversionmigrations"}},
	{42, "resource.k8s.io", "v1alpha3", []string{"resourcepoolstatusrequests"}},
	{42, "resource.k8s.io", "v1beta2", []string{"devicetaintrules"}},
	{43, "lifecycle.k8s.io", "v1alpha1", []string{"evictionrequests", "evictions"}},
	{43, "scheduling.k8s.io", "v1beta1", []string{"podgroups", "workloads"}},
}

// APIGoneIn is the version of Kubernetes, up to another one, that doesn't serve an API; empty if all do. What the table doesn't
// know is judged by the version that the kube-apiserver announced, such as "1.38".
func APIGoneIn(api API, announced, to string) string {
	target, err := parse(to)
	if err != nil {
		return ""
	}
	for _, removal := range apiRemovals {
		if removal.group == api.Group && removal.version == api.Version && slices.Contains(removal.resources, api.Resource) {
			announced = fmt.Sprintf("1.%d", removal.minor)
		}
	}
	gone, err := version.ParseGeneric(announced)
	if err != nil || target.LessThan(gone) {
		return ""
	}
	return fmt.Sprintf("%d.%d", gone.Major(), gone.Minor())
}

// CrossesMinor tells whether the way from one version to another one leads to another minor version: only there APIs go away.
// A version that can't be read may be any.
func CrossesMinor(from, to string) bool {
	a, err := parse(from)
	if err != nil {
		return true
	}
	b, err := parse(to)
	return err != nil || a.Minor() != b.Minor() || a.Major() != b.Major()
}

// InUse are the findings about API versions that one kube-apiserver was asked for, by where that one is.
type InUse map[string][]Requested

// Requested is an API version whose end is announced, and that somebody asked a kube-apiserver for.
type Requested struct {
	API
	// Announced is the version of Kubernetes that won't serve it, by the kube-apiserver; empty if none is decided on.
	Announced string
}

// CheckAPIs judges the API versions that are in use.
func CheckAPIs(inUse InUse, to string) []Finding {
	on := map[string][]string{}
	for where, requested := range inUse {
		for _, r := range requested {
			if since := APIGoneIn(r.API, r.Announced, to); since != "" {
				message := fmt.Sprintf("%s is in use, and Kubernetes %s doesn't serve it any more", r.API, since)
				on[message] = append(on[message], where)
			}
		}
	}
	var findings []Finding
	for message, names := range on {
		slices.Sort(names)
		findings = append(findings, Finding{Check: CheckAPIVersions, Blocks: true, Message: fmt.Sprintf(
			"%s: it was asked for on %s since kube-apiserver started there", message, strings.Join(slices.Compact(names), ", "))})
	}
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	if len(findings) > 0 {
		findings = append(findings, Finding{Check: CheckAPIVersions, Blocks: true, Message: "who asks is in the audit log of kube-apiserver, " +
			"at annotation k8s.io/removed-release; have them use a version that stays, then reboot these control planes one after the other " +
			"(kube-apiserver forgets what it was asked for when it starts), and make the operation again"})
	}
	return findings
}
