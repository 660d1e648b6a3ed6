// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// sightingKind is what a look at a machine's addresses found.
type sightingKind int

const (
	// sawNothing: no address answers as Talos.
	sawNothing sightingKind = iota
	// sawMaintenance: an address answers in maintenance mode; whose, is not known yet.
	sawMaintenance
	// sawConfigured: this very machine runs with the cluster's certificate authorities.
	sawConfigured
	// sawLocked: a configured Talos answers and doesn't let us in, or can't be read. It may be on its way.
	sawLocked
	// sawOther: another machine answers with the cluster's certificate authorities.
	sawOther
)

// sighting is where a machine was found, and how.
type sighting struct {
	kind    sightingKind
	address netip.Addr
	probe   talos.Probe
	node    talos.ConfiguredNode
	facts   *talos.Facts
	// reply is what an address answered over mutual TLS.
	reply reply
	// awake says what answers at the machine's other addresses. Only silence there shows that it isn't at them.
	awake []string
	// message says for people what was found.
	message string
}

func (s *sighting) close() {
	if s.node != nil {
		_ = s.node.Close()
	}
}

// readTimeout bounds one look at one machine over mutual TLS.
const readTimeout = 20 * time.Second

// look finds the machine at its addresses: over mutual TLS if it has, or may have, a configuration of this cluster, else
// by what answers. The error is about the cluster's secrets or the API.
func (v *visit) look(ctx context.Context) (*sighting, error) {
	addresses := candidates(v.m)
	if len(addresses) == 0 {
		return &sighting{message: "no address of the machine is known; it is found by the search for machines (spec.discovery of the cluster)"}, nil
	}
	var refused *sighting
	replies := make([]reply, len(addresses))
	if sent(v.m) || v.m.Spec.Origin == v1alpha1.MachineAdopted {
		credentials, err := v.Credentials.CredentialsFor(ctx, v.cluster.Name)
		if err != nil {
			return nil, err
		}
		found := v.lookConfigured(ctx, addresses, credentials, replies)
		if found.kind == sawConfigured {
			return found, nil
		}
		refused = found
	}
	probed, locked := v.probeAll(ctx, addresses, replies)
	if locked != nil && v.mayBeImpostor(probed) {
		locked.message = fmt.Sprintf("a machine in maintenance mode answers at %s, but a configured one does at %s, so nothing is sent; %s", probed.address, locked.address, vouchFor(probed))
		return locked, nil
	}
	if refused == nil && probed.kind == sawLocked {
		return v.lookLocked(ctx, probed)
	}
	return best(refused, probed), nil
}

// lookLocked finds out whether a configured machine that should be in maintenance mode is this cluster's.
func (v *visit) lookLocked(ctx context.Context, probed *sighting) (*sighting, error) {
	credentials, err := v.Credentials.CredentialsFor(ctx, v.cluster.Name)
	if err != nil {
		return nil, err
	}
	if found := v.readConfigured(ctx, probed.address, credentials); found.kind == sawConfigured || found.kind == sawOther {
		return found, nil
	}
	return probed, nil
}

// best chooses between what mutual TLS and what probing found. Another machine that our authorities vouch for hides
// nothing but silence.
func best(refused, probed *sighting) *sighting {
	if refused == nil || probed.kind == sawMaintenance {
		return probed
	}
	if refused.kind == sawOther {
		return refused
	}
	if refused.message != "" {
		probed.message = refused.message
	}
	return probed
}

// lookConfigured dials every address until the machine itself answers, and notes what each replied.
func (v *visit) lookConfigured(ctx context.Context, addresses []netip.Addr, credentials talos.Credentials, replies []reply) *sighting {
	result := &sighting{}
	var messages []string
	for i, address := range addresses {
		found := v.readConfigured(ctx, address, credentials)
		replies[i] = found.reply
		if found.kind == sawConfigured {
			return found
		}
		if found.kind == sawOther && result.kind == sawNothing {
			result = found
		}
		messages = append(messages, found.message)
	}
	if result.kind == sawNothing {
		result.message = strings.Join(messages, "; ")
	}
	return result
}

// readConfigured connects to one address and reads who it is and how it does.
func (v *visit) readConfigured(ctx context.Context, address netip.Addr, credentials talos.Credentials) *sighting {
	found := &sighting{address: address}
	node, err := v.Dialer.DialConfigured(ctx, address, credentials)
	if err != nil {
		found.message = err.Error()
		if !talos.IsUnreachable(err) {
			found.reply = replyRefused
		}
		return found
	}
	found.reply = replyTrusted
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := v.readNode(ctx, found, node); err != nil {
		_ = node.Close()
		found.message = err.Error()
	}
	return found
}

func (v *visit) readNode(ctx context.Context, found *sighting, node talos.ConfiguredNode) error {
	facts, err := node.Facts(ctx)
	if err != nil {
		return err
	}
	if who := facts.Identity; !same(v.m.Spec.Identity, who) {
		found.kind, found.reply = sawOther, replyOther
		return fmt.Errorf("another machine answers at %s: %s", found.address, describeIdentity(who))
	}
	found.kind, found.node, found.facts = sawConfigured, node, facts
	return nil
}

// probeAll classifies all addresses at once; each probe has its own bound. replies are what the addresses said over
// mutual TLS. Besides what to go on with, it returns the first address at which a configured machine is.
func (v *visit) probeAll(ctx context.Context, addresses []netip.Addr, replies []reply) (found, locked *sighting) {
	probes := make([]talos.Probe, len(addresses))
	var running sync.WaitGroup
	for i, address := range addresses {
		running.Go(func() { probes[i] = v.Prober.Probe(ctx, address) })
	}
	running.Wait()
	found = &sighting{}
	var messages []string
	for i, probe := range probes {
		if locked == nil && (probe.Class == v1alpha1.HostAlreadyConfigured || replies[i] == replyTrusted) {
			locked = &sighting{kind: sawLocked, address: addresses[i], probe: probe}
		}
		if probe.Class == v1alpha1.HostMaintenance && (found.kind == sawNothing || !v.trusts(found) && v.trusts(&sighting{probe: probe})) {
			found.kind, found.address, found.probe = sawMaintenance, addresses[i], probe
		}
		messages = append(messages, fmt.Sprintf("%s: %s", addresses[i], probe.Message))
	}
	message := strings.Join(messages, "; ")
	if found.kind == sawNothing && locked != nil {
		locked.message = message
		return locked, locked
	}
	found.message = message
	if found.kind == sawMaintenance {
		found.awake = awake(found, addresses, probes, replies)
	}
	return found, locked
}

func same(a, b v1alpha1.MachineIdentity) bool {
	return identity.SameMachine(identity.Identity(a), identity.Identity(b))
}

func describeIdentity(id v1alpha1.MachineIdentity) string {
	return fmt.Sprintf("UUID %s, serial number %q, MAC addresses %s", id.UUID, id.SerialNumber, strings.Join(id.MACAddresses, ", "))
}

// note writes down whether the machine answers.
func (v *visit) note(found *sighting) {
	switch found.kind {
	case sawConfigured:
		v.reachable(true, "the machine answers")
	case sawMaintenance:
		v.reachable(true, "the machine answers in maintenance mode")
	case sawLocked:
		v.reachable(true, "the machine answers, but doesn't let Ichor in yet")
	default:
		v.reachable(false, "nothing answers as this machine: "+found.message)
	}
}
