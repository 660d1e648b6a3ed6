// SPDX-License-Identifier: Apache-2.0

// Package app holds the flags of ichor-controller and puts its parts together.
package app

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/controllers/servingcertificate"
)

// Options are what ichor-controller can be told.
type Options struct {
	// Kubeconfig to reach the cluster by; empty: the pod's ServiceAccount.
	Kubeconfig string
	// HealthAddress serves /healthz, /readyz and /metrics; empty: not served.
	HealthAddress string
	// Profiling serves /debug/pprof/ beside the health. Profiles tell of what the controller holds in memory, so they are
	// off unless somebody looks for a fault.
	Profiling bool
	// LeaderElect makes replicas take turns; off for one that runs alone.
	LeaderElect                               bool
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	MachineWorkers, ClusterWorkers            int
	// ScanConcurrency is how many addresses are looked at at a time, ScanRate how many packets a second look at them.
	ScanConcurrency, ScanRate int
	// SnapshotDirectory holds the encrypted snapshots of etcd that are taken before a control plane goes down.
	SnapshotDirectory string
	// NodeStreamAddress serves machines' logs to ichor-apiserver; empty: not served.
	NodeStreamAddress string
	// QPS and Burst bound the requests to the Kubernetes API.
	QPS   float32
	Burst int
	// ServingCertificates has the serving certificate of ichor-apiserver issued, as ServingCertificate says.
	ServingCertificates bool
	ServingCertificate  servingcertificate.Settings
}

// DefaultOptions are the options without any flag.
func DefaultOptions() Options {
	return Options{
		HealthAddress:     ":8081",
		LeaderElect:       true,
		LeaseDuration:     15 * time.Second,
		RenewDeadline:     10 * time.Second,
		RetryPeriod:       2 * time.Second,
		MachineWorkers:    32,
		ClusterWorkers:    2,
		ScanConcurrency:   256,
		ScanRate:          500,
		SnapshotDirectory: "/var/lib/ichor/etcd-snapshots",
		NodeStreamAddress: ":10260",
		QPS:               100,
		Burst:             200,

		ServingCertificates: true,
		ServingCertificate:  servingcertificate.DefaultSettings(),
	}
}

// AddFlags makes a flag of each option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the cluster; without it, the pod's ServiceAccount is used")
	flags.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "address of /healthz, /readyz and /metrics; empty serves none")
	flags.BoolVar(&o.Profiling, "profiling", o.Profiling, "serve /debug/pprof/ at the health address")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "wait to become the leader before working")
	flags.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration, "how long others wait for a leader that is silent")
	flags.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline, "how long the leader tries to renew before it gives up")
	flags.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod, "time between two tries to become the leader")
	flags.IntVar(&o.MachineWorkers, "machine-workers", o.MachineWorkers, "machines that are worked on at a time")
	flags.IntVar(&o.ClusterWorkers, "cluster-workers", o.ClusterWorkers, "clusters that are worked on at a time")
	flags.IntVar(&o.ScanConcurrency, "scan-concurrency", o.ScanConcurrency, "addresses that are looked at at a time in the search for machines, for each cluster")
	flags.IntVar(&o.ScanRate, "scan-rate", o.ScanRate, "packets a second that ask addresses for a connection in the search for machines, over all clusters; an address that is silent takes two")
	flags.StringVar(&o.SnapshotDirectory, "etcd-snapshot-dir", o.SnapshotDirectory, "directory of the snapshots of etcd that are taken before an operation takes a control plane down; they are encrypted with a key from the cluster's secrets bundle")
	flags.StringVar(&o.NodeStreamAddress, "node-stream-address", o.NodeStreamAddress, "address at which ichor-apiserver, and nobody else, reads machines' logs; empty serves none. Needs --serving-certificates")
	flags.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "requests to the Kubernetes API a second")
	flags.IntVar(&o.Burst, "kube-api-burst", o.Burst, "requests to the Kubernetes API at once")
	flags.BoolVar(&o.ServingCertificates, "serving-certificates", o.ServingCertificates, "issue and renew the serving certificate of ichor-apiserver; false where something else does, such as cert-manager")
	s := &o.ServingCertificate
	flags.StringSliceVar(&s.Names, "serving-certificate-names", s.Names, "DNS names and IP addresses that the serving certificate is for, besides those of the Service")
	flags.DurationVar(&s.LeafLifetime, "serving-certificate-lifetime", s.LeafLifetime, "how long a serving certificate is good; it is replaced at two thirds of it")
	flags.DurationVar(&s.AuthorityLifetime, "serving-authority-lifetime", s.AuthorityLifetime, "how long the certificate authority of the serving certificate is good; it is replaced at two thirds of it")
	flags.DurationVar(&s.Propagation, "serving-certificate-propagation", s.Propagation, "how long a change may take until every kube-apiserver knows it, or every ichor-apiserver has it in its files")
}

// Validate names every option that can't be.
func (o *Options) Validate() error {
	var errs []error
	for _, each := range []struct {
		flag  string
		value int
	}{
		{"machine-workers", o.MachineWorkers}, {"cluster-workers", o.ClusterWorkers}, {"scan-concurrency", o.ScanConcurrency}, {"scan-rate", o.ScanRate}, {"kube-api-burst", o.Burst},
	} {
		if each.value < 1 || each.value > 4096 {
			errs = append(errs, fmt.Errorf("--%s: %d is not between 1 and 4096", each.flag, each.value))
		}
	}
	if o.SnapshotDirectory == "" {
		errs = append(errs, errors.New("--etcd-snapshot-dir: must be given"))
	}
	if o.QPS <= 0 {
		errs = append(errs, fmt.Errorf("--kube-api-qps: %v is not positive", o.QPS))
	}
	for flag, address := range map[string]string{"health-address": o.HealthAddress, "node-stream-address": o.NodeStreamAddress} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			errs = append(errs, fmt.Errorf("--%s: %q is no host:port", flag, address))
		}
	}
	if o.LeaderElect && !(o.LeaseDuration > o.RenewDeadline && o.RenewDeadline > o.RetryPeriod && o.RetryPeriod > 0) {
		errs = append(errs, fmt.Errorf("--leader-elect-*: lease duration %s, renew deadline %s and retry period %s must be positive and in that order, the largest first", o.LeaseDuration, o.RenewDeadline, o.RetryPeriod))
	}
	if o.ServingCertificates {
		errs = append(errs, o.ServingCertificate.Validate())
	}
	return errors.Join(errs...)
}

// NewCommand is the command line of ichor-controller.
func NewCommand() *cobra.Command {
	options := DefaultOptions()
	command := &cobra.Command{
		Use:           "ichor-controller",
		Short:         "Takes approved Talos machines to Ready and searches for new ones",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := options.Validate(); err != nil {
				return err
			}
			return Run(command.Context(), options)
		},
	}
	options.AddFlags(command.Flags())
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	command.Flags().AddGoFlag(logging.Lookup("v"))
	return command
}
