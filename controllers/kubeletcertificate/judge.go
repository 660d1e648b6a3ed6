// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// nodeUserPrefix and nodeGroup are how Kubernetes knows a node. Source: Kubernetes, staging/src/k8s.io/apiserver,
	// pkg/authentication/user.
	nodeUserPrefix = "system:node:"
	nodeGroup      = "system:nodes"
)

// verdict is what becomes of a request.
type verdict int

const (
	// leaveAlone: it is none of Ichor's, or decided.
	leaveAlone verdict = iota
	// hold: it isn't right, and may become so.
	hold
	// deny: it is about a machine of Ichor's, and can never become right.
	deny
	// approve: everything in it is the machine's.
	approve
)

// Reasons of conditions and events.
const (
	reasonApproved    = "KubeletCertificateApproved"
	reasonDenied      = "KubeletCertificateDenied"
	reasonWaiting     = "KubeletCertificateWaiting"
	reasonForged      = "NotFromTheNode"
	reasonMalformed   = "NotAKubeletsRequest"
	messageOfApproval = "every name and address in it is the machine's"
)

// judgement is a verdict with its words. Machine is nil where the verdict is leaveAlone.
type judgement struct {
	verdict verdict
	machine *v1alpha1.TalosMachine
	// reason is set for denials.
	reason, message string
}

// surroundings are what a request is held against.
type surroundings struct {
	machines []*v1alpha1.TalosMachine
	// cluster is nil where there is none of that name.
	cluster func(name string) *v1alpha1.TalosCluster
}

// judge decides on a request. What can never become right is denied, because a kubelet then asks anew; what may (an
// address that wasn't observed yet) waits. A request of a node that is no machine's is left to whoever manages that node.
func judge(csr *certificatesv1.CertificateSigningRequest, around surroundings) judgement {
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName || csr.DeletionTimestamp != nil || decided(csr) {
		return judgement{}
	}
	request, parseErr := parse(csr.Spec.Request)
	name := claimedNode(csr, request)
	if name == "" {
		return judgement{}
	}
	owners := around.ownersOf(name)
	if len(owners) == 0 {
		return judgement{}
	}
	owner := owners[0]
	cluster := around.cluster(owner.Spec.ClusterRef.Name)
	if cluster == nil || !cluster.Spec.Hardening.KubeletServingCertificates {
		return judgement{}
	}
	says := func(verdict verdict, reason, format string, arguments ...any) judgement {
		return judgement{verdict: verdict, machine: owner, reason: reason, message: fmt.Sprintf(format, arguments...)}
	}
	if csr.Spec.Username != nodeUserPrefix+name || !slices.Contains(csr.Spec.Groups, nodeGroup) {
		return says(deny, reasonForged, "%s asks for a serving certificate of node %s; only the node itself may", quote(csr.Spec.Username), name)
	}
	if parseErr != nil {
		return says(deny, reasonMalformed, "%s", parseErr)
	}
	if why := malformed(request, csr.Spec.Username, csr.Spec.Usages); why != "" {
		return says(deny, reasonMalformed, "%s", why)
	}
	if len(owners) > 1 {
		return says(hold, "", "machines %s and %s both say that they are node %s; find out which is and remove the other", owner.Name, owners[1].Name, name)
	}
	if owner.DeletionTimestamp != nil {
		return says(hold, "", "machine %s is being removed", owner.Name)
	}
	if why := foreign(request, name, owner, cluster, around.machines); why != "" {
		return says(hold, "", "%s", why)
	}
	return says(approve, "", messageOfApproval)
}

// decided tells whether somebody has decided already.
func decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) > 0 || slices.ContainsFunc(csr.Status.Conditions, func(condition certificatesv1.CertificateSigningRequestCondition) bool {
		return condition.Type == certificatesv1.CertificateApproved || condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed
	})
}

// claimedNode is the node that a request is about: the one that asks, else the one whose name is asked for.
func claimedNode(csr *certificatesv1.CertificateSigningRequest, request *request) string {
	if name, ok := strings.CutPrefix(csr.Spec.Username, nodeUserPrefix); ok {
		return name
	}
	if request == nil {
		return ""
	}
	name, _ := strings.CutPrefix(request.commonName, nodeUserPrefix)
	if name == request.commonName {
		return ""
	}
	return name
}

// ownersOf are the approved machines that say, over a connection that was verified, that the node is theirs.
func (s surroundings) ownersOf(node string) []*v1alpha1.TalosMachine {
	var owners []*v1alpha1.TalosMachine
	for _, m := range s.machines {
		if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && m.Status.NodeName == node {
			owners = append(owners, m)
		}
	}
	return owners
}

// quote bounds what somebody else wrote.
func quote(text string) string {
	const longest = 128
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return fmt.Sprintf("%q", text)
}
