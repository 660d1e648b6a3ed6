// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/client-go/transport"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
)

// Config is what a first node is made of.
type Config struct {
	// Cluster is the cluster to make. Its spec is defaulted; its secretsRef names the Secret that will hold the bundle.
	Cluster *v1alpha1.TalosCluster
	// KeepAuditPolicy leaves spec.hardening.auditPolicy of the cluster as it is given; else it becomes Ichor's.
	KeepAuditPolicy bool
	// Machine is the first control plane, its spec as an approval would decide it: hostname, disks, network, labels. Its
	// identity may be left empty: it is then read from the machine.
	Machine *v1alpha1.TalosMachine
	// Address is where the machine waits in maintenance mode.
	Address netip.Addr
	// Fingerprint is the one on the machine's console; nothing is sent to a machine that presents another.
	Fingerprint talos.Fingerprint
	// StateDir keeps the journal and, until it is in Kubernetes, the secrets bundle. Created with mode 0700; the files
	// in it have mode 0600.
	StateDir string

	Dialer talos.Dialer
	Prober talos.Prober
	// Transport is put around the connections to the new cluster's Kubernetes API, for instance to trace requests. It
	// may be nil.
	Transport transport.WrapperFunc

	// Install installs Ichor, or starts it, and returns once Ichor's API is served and its own resources can be created.
	// It must be idempotent: a resumed run calls it again.
	Install func(ctx context.Context, access Access) error
	// Progress is told what happens, for people. It may be nil. It is called from one goroutine.
	Progress func(Event)
}

// Access is how to reach the new cluster. All of it is secret but EtcdCA and EtcdCert.
type Access struct {
	// Kubeconfig of an administrator, as Talos makes it.
	Kubeconfig []byte
	// EtcdCA, EtcdCert and EtcdKey are the PEM of a client certificate for the cluster's etcd: Ichor's own API server
	// stores its resources there.
	EtcdCA, EtcdCert, EtcdKey []byte
	// TalosConfig of an administrator, with the machine as its endpoint.
	TalosConfig []byte
}

// Result is a cluster that runs.
type Result struct {
	Access Access
	// Machine is the TalosMachine of the first node.
	Machine *v1alpha1.TalosMachine
}

// Step is a part of the way.
type Step string

// The steps, in order.
const (
	StepBundle     Step = "Bundle"
	StepConfigure  Step = "Configure"
	StepInstall    Step = "Install"
	StepEtcd       Step = "Etcd"
	StepKubernetes Step = "Kubernetes"
	StepIchor      Step = "Ichor"
	StepRegister   Step = "Register"
	StepDone       Step = "Done"
)

// Event is something worth telling a person.
type Event struct {
	Time    time.Time
	Step    Step
	Message string
}

// Run brings the first node up, or carries on where an earlier run was cut off. It returns when the cluster runs, or
// with an error that says what to do; ctx bounds the whole.
func Run(ctx context.Context, config Config) (*Result, error) {
	r, err := prepare(config)
	if err != nil {
		return nil, err
	}
	defer r.journal.close()
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) (*Result, error) {
	access := Access{}
	for _, step := range []struct {
		name Step
		do   func(context.Context) error
	}{
		{StepBundle, r.ensureBundle},
		{StepConfigure, r.configure},
		{StepInstall, r.awaitInstalled},
		{StepEtcd, r.bootstrapEtcd},
		{StepKubernetes, func(ctx context.Context) (err error) { access, err = r.openKubernetes(ctx); return err }},
		{StepIchor, func(ctx context.Context) error { return r.Install(ctx, access) }},
		{StepRegister, func(ctx context.Context) error { return r.register(ctx, access) }},
	} {
		r.step = step.name
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("first node, step %s: %w", step.name, err)
		}
	}
	r.step = StepDone
	r.tell("cluster %s runs; machine %s is its first control plane", r.cluster.Name, r.registered.Name)
	return &Result{Access: access, Machine: r.registered}, nil
}
