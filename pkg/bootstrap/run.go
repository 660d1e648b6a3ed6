// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"k8s.io/apimachinery/pkg/util/wait"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

// run is one run: what was asked for, and what it learnt on the way.
type run struct {
	Config
	cluster *v1alpha1.TalosCluster
	machine *v1alpha1.TalosMachine
	journal *journal
	bundle  *secretsbundle.Bundle
	// facts were read last over mutual TLS, at the address reached.
	facts      *talos.Facts
	reached    netip.Addr
	registered *v1alpha1.TalosMachine
	step       Step
	lastTold   string
	// applyWindow is how long after its intent a configuration may still be on its way to the machine.
	applyWindow time.Duration
	// interval is the time between two looks at a machine or an API that is on its way.
	interval time.Duration
	now      func() time.Time
	// connect makes the clients for the new cluster.
	connect func(kubeconfig []byte) (*clients, error)
}

func prepare(config Config) (*run, error) {
	if err := validateConfig(config); err != nil {
		return nil, fmt.Errorf("bootstrap of a first node: %w", err)
	}
	cluster, machine := config.Cluster.DeepCopy(), config.Machine.DeepCopy()
	v1alpha1.SetDefaults_TalosClusterSpec(&cluster.Spec)
	if !config.KeepAuditPolicy {
		cluster.Spec.Hardening.AuditPolicy = v1alpha1.AuditPolicyIchor
	}
	v1alpha1.SetDefaults_TalosMachineSpec(&machine.Spec)
	machine.Spec.Role = v1alpha1.RoleControlPlane
	machine.Spec.Origin = v1alpha1.MachineAdopted
	machine.Spec.ClusterRef.Name = cluster.Name
	journal, err := openJournal(config.StateDir, cluster.Name)
	if err != nil {
		return nil, err
	}
	return &run{
		Config: config, cluster: cluster, machine: machine, journal: journal,
		applyWindow: 30 * time.Second, interval: time.Second, now: time.Now,
		connect: func(kubeconfig []byte) (*clients, error) { return connect(kubeconfig, config.Transport) },
	}, nil
}

func validateConfig(config Config) error {
	var errs []error
	if config.Cluster == nil || config.Cluster.Name == "" {
		errs = append(errs, errors.New("a cluster with a name is required"))
	} else if ref := config.Cluster.Spec.SecretsRef; ref.Namespace == "" || ref.Name == "" {
		errs = append(errs, fmt.Errorf("cluster %s: spec.secretsRef must name the Secret that the bundle is kept in", config.Cluster.Name))
	}
	if config.Machine == nil {
		errs = append(errs, errors.New("a machine is required"))
	} else if role := config.Machine.Spec.Role; role != "" && role != v1alpha1.RoleControlPlane {
		errs = append(errs, fmt.Errorf("machine: the first node is a control plane, not a %s", role))
	}
	if !config.Address.IsValid() {
		errs = append(errs, errors.New("the address of the machine in maintenance mode is required"))
	}
	if config.StateDir == "" {
		errs = append(errs, errors.New("a state directory is required"))
	}
	if config.Dialer == nil || config.Prober == nil || config.Install == nil {
		errs = append(errs, errors.New("a dialer, a prober and an install function are required"))
	}
	return errors.Join(errs...)
}

// tell reports progress; the same text isn't told twice in a row.
func (r *run) tell(format string, arguments ...any) {
	message := fmt.Sprintf(format, arguments...)
	if message == r.lastTold {
		return
	}
	r.lastTold = message
	if r.Progress != nil {
		r.Progress(Event{Time: r.now(), Step: r.step, Message: message})
	}
}

// poll looks again and again until look says done, fails for good, or ctx ends; what it was waiting for is then part of
// the error. A look that returns waiting tells why it isn't done yet.
func (r *run) poll(ctx context.Context, look func(context.Context) (done bool, waiting string, err error)) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, r.interval, true, func(ctx context.Context) (bool, error) {
		done, waiting, err := look(ctx)
		if err == nil && !done && waiting != "" {
			last = waiting
			r.tell("%s", waiting)
		}
		return done, err
	})
	if err != nil && ctx.Err() != nil && last != "" {
		return fmt.Errorf("gave up waiting: %s: %w", last, context.Cause(ctx))
	}
	return err
}

// addresses are where the configured machine may be: where it was configured to be, once that was sent, and where it was
// seen in maintenance mode.
func (r *run) addresses() []netip.Addr {
	var addresses []netip.Addr
	if network := r.machine.Spec.Network; network != nil && r.journal.Apply.IntendedAt != nil {
		for _, text := range network.Addresses {
			if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr() != r.Address {
				addresses = append(addresses, prefix.Addr())
			}
		}
	}
	return append(addresses, r.Address)
}

// dial connects to the configured machine and checks that it is the one that was meant.
func (r *run) dial(ctx context.Context) (talos.ConfiguredNode, error) {
	credentials, err := r.bundle.Credentials(r.now(), role.Admin, secretsbundle.CredentialsTTL)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, address := range r.addresses() {
		node, err := r.Dialer.DialConfigured(ctx, address, credentials)
		if err == nil {
			if err = r.checkIdentity(ctx, node); err == nil {
				r.reached = address
				return node, nil
			}
			_ = node.Close()
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// otherMachineError is another machine than the one that was meant. Nothing was sent to it.
type otherMachineError struct{ message string }

func (e *otherMachineError) Error() string { return e.message }

// checkIdentity reads on this very connection which machine it is. Without an identity in the configuration the first
// one that is read is kept in the journal, and has to stay.
func (r *run) checkIdentity(ctx context.Context, node talos.MaintenanceNode) error {
	have, err := node.Identity(ctx)
	if err != nil {
		return fmt.Errorf("read the identity of the machine at %s: %w", r.Address, err)
	}
	want := r.machine.Spec.Identity
	if r.journal.Identity != nil {
		want = *r.journal.Identity
	}
	if want.UUID == "" && want.SerialNumber == "" && len(want.MACAddresses) == 0 {
		r.journal.Identity = &have
		return r.journal.save()
	}
	if !identity.SameMachine(identity.Identity(want), identity.Identity(have)) {
		return &otherMachineError{fmt.Sprintf("the machine at %s has UUID %s, serial %q and MAC addresses %v; expected UUID %s, serial %q and %v: nothing was sent to it",
			r.Address, have.UUID, have.SerialNumber, have.MACAddresses, want.UUID, want.SerialNumber, want.MACAddresses)}
	}
	if r.journal.Identity == nil {
		r.journal.Identity = &have
		return r.journal.save()
	}
	return nil
}
