// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"net/netip"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/talos"
)

// A machine that ran and is said to be back with an empty disk gets the cluster's secrets once more. Everything that it
// says of itself in maintenance mode can be said by another as well, so what counts is that the machine itself is silent
// everywhere else.

// reply is what an address answered over mutual TLS. The zero value: no connection came about, or none was tried.
type reply int

const (
	// replyRefused: something is there, but no connection over mutual TLS came about.
	replyRefused reply = iota + 1
	// replyOther: another machine of the cluster is there.
	replyOther
	// replyTrusted: a machine of the cluster is there; unless it was read, it may be this one.
	replyTrusted
)

// awake says what answers at the addresses that the machine isn't said to be wiped at. A machine in maintenance mode may
// have several addresses: there it presents the same certificate.
func awake(found *sighting, addresses []netip.Addr, probes []talos.Probe, replies []reply) []string {
	var words []string
	for i, probe := range probes {
		itself := probe.Class == v1alpha1.HostMaintenance && probe.Fingerprint == found.probe.Fingerprint
		switch {
		case replies[i] == replyTrusted:
			words = append(words, fmt.Sprintf("a machine of the cluster answers at %s and can't be read", addresses[i]))
		case replies[i] == replyOther && !itself:
			words = append(words, fmt.Sprintf("another machine of the cluster answers at %s", addresses[i]))
		case itself:
		case probe.Class != v1alpha1.HostUnreachable:
			words = append(words, fmt.Sprintf("at %s answers %s", addresses[i], probe.Message))
		case replies[i] == replyRefused:
			words = append(words, fmt.Sprintf("at %s something answered a moment ago", addresses[i]))
		}
	}
	return words
}

// ran tells whether the machine ran with the cluster's secrets, so that one in maintenance mode in its place is in doubt.
func ran(m *v1alpha1.TalosMachine) bool {
	record := m.Status.Provisioning
	return m.Spec.Origin == v1alpha1.MachineAdopted || record != nil && record.ConvergedAt != nil
}

// trusts tells whether a certificate was approved, or is vouched for by a person.
func (v *visit) trusts(found *sighting) bool {
	_, ok := trusted(v.m, found.probe.Fingerprint)
	return ok
}

// mayBeImpostor tells whether nobody vouches for what answers in maintenance mode in the place of a machine that ran.
func (v *visit) mayBeImpostor(found *sighting) bool {
	return found.kind == sawMaintenance && ran(v.m) && !namedByAnnotation(v.m, found.probe.Fingerprint)
}

// vouchFor tells a person how to overrule what is in doubt.
func vouchFor(found *sighting) string {
	return fmt.Sprintf("if that is the machine, by the certificate on its console, annotate this one with %s=%s", v1alpha1.TrustMaintenanceFingerprintAnnotation, found.probe.Fingerprint)
}

// signsOfLife are what speaks against a machine having been wiped: what answers at its other addresses, and a kubelet
// that still reports with the cluster's credentials.
func (v *visit) signsOfLife(found *sighting) ([]string, error) {
	signs := found.awake
	if v.m.Status.NodeName == "" {
		return signs, nil
	}
	node, err := v.nodes.ForMachine(v.m.Status.NodeName, nil)
	if err != nil {
		return nil, err
	}
	if node != nil {
		if ready, _ := kube.NodeReady(node); ready {
			signs = append(signs, fmt.Sprintf("Node %s is ready", node.Name))
		}
	}
	return signs, nil
}
