// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/progress"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// decisionFlags are the flags that decide something; with any of them nothing is asked.
var decisionFlags = []string{
	"cluster", "role", "install-disk", "disk", "interface", "address", "gateway", "nameserver", "vlan", "label",
	"hostname", "reason", "fingerprint",
}

type approveOptions struct {
	env         *cli.Env
	targets     targets
	choices     proposal.Choices
	cluster     string
	fingerprint string
	// files are plans, which name machines and decide about them.
	files []string
	yes   bool
	// decided is true when a decision flag was given.
	decided bool
	dryRun  cli.DryRun
	wait    progress.Wait
	print   *output.Objects
	asker   func() asker

	client   versioned.Interface
	machines []v1alpha1.TalosMachine
	clusters []v1alpha1.TalosCluster
}

func newApprove(env *cli.Env) *cobra.Command {
	options := &approveOptions{env: env, print: output.NewObjects("approved"), asker: func() asker { return newAsker(env) }}
	cmd := &cobra.Command{
		Use:   "approve [NAME...]",
		Short: "Approve machines: decide what they become, and let Ichor configure them",
		Long: `Approve machines that wait in maintenance mode: decide their role, disks and network, and let Ichor configure them.

On a terminal, without flags, it shows the machine and asks; the sensible choice comes first, and no disk is wiped
without consent. With flags it never asks. --yes takes the proposal for all that wasn't given, and is consent to wipe the
disks it names.

What is approved is what was shown: if the machine's certificate, hardware or identity changed meanwhile, nothing is
approved. Compare the fingerprint with the one on the machine's console, or give that with --fingerprint.

With -f the machines and all that is decided about them are in a file, a whole rack say. The file is checked as a whole
first, and then by the server, machine by machine, without storing anything; if one thing is wrong nothing is approved,
and all faults are told at once, with their lines. Machines that were approved as the file says are left unchanged, so the
same file may be given again. See docs/approving-a-rack.md and "machine plan".

` + namesHelp,
		Example: cli.Examples(env, `
			# Look at a machine, answer a few questions, watch it become Ready
			ichor machine approve 10.0.0.61

			# Decide with flags
			ichor machine approve 10.0.0.61 --role controlplane --hostname cp-2 --install-disk S1

			# A worker with a data disk and a static address in a VLAN
			ichor machine approve Q6RL12 --role worker --install-disk S1 --disk serial=S2:userVolume:data --interface 02:00:5e:00:53:01 --address 10.0.0.21/24 --gateway 10.0.0.1 --nameserver 10.0.0.1 --vlan 40

			# All machines of a rack, as proposed
			ichor machine approve -l rack=1 --role worker --yes

			# A rack as it is written down in a file: check it, then approve it
			ichor machine approve -f rack1.yaml --dry-run=server
			ichor machine approve -f rack1.yaml
		`),
		ValidArgsFunction: lookup.CompleteMachines(env, isPending),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range decisionFlags {
				options.decided = options.decided || cmd.Flags().Changed(name)
			}
			if err := options.check(cmd, args); err != nil {
				return err
			}
			return options.run(cmd.Context(), args)
		},
	}
	options.addFlags(cmd)
	return cmd
}

func (o *approveOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.cluster, "cluster", "", "The TalosCluster to join. Defaults to the only one there is.")
	flags.StringVar(&o.choices.Role, "role", "", "controlplane or worker.")
	flags.StringVar(&o.choices.InstallDisk, "install-disk", "", "The disk that Talos is installed on, WIPED: a serial number, a WWID or a path such as /dev/nvme0n1. What is stored is what is burnt into the disk, never the path.")
	flags.StringArrayVar(&o.choices.Disks, "disk", nil, "What another disk is for, as DISK:ROLE or DISK:userVolume:NAME; ROLE is ephemeral, storage, userVolume or unused. For instance serial=S2:userVolume:data. May be repeated; disks that aren't named stay unused.")
	flags.StringVar(&o.choices.Interface, "interface", "", "The primary network interface: a MAC address, or a name such as enp1s0.")
	flags.StringSliceVar(&o.choices.Addresses, "address", nil, "A static address with its prefix length, for instance 10.0.0.21/24. Without it: DHCP.")
	flags.StringVar(&o.choices.Gateway, "gateway", "", "The default route of a static address.")
	flags.StringSliceVar(&o.choices.Nameservers, "nameserver", nil, "DNS servers' addresses.")
	flags.Int32Var(&o.choices.VLAN, "vlan", 0, "The VLAN that the address is on, 1 to 4094.")
	flags.StringToStringVar(&o.choices.Labels, "label", nil, "Labels of the Kubernetes Node, as key=value.")
	flags.StringVar(&o.choices.Hostname, "hostname", "", "The machine's hostname and its Node's name. Without it Talos chooses one; --yes takes the next of its kind.")
	flags.StringVar(&o.choices.Reason, "reason", "", "A note that is kept with the approval.")
	flags.StringVar(&o.fingerprint, "fingerprint", "", "The fingerprint on the machine's console; if the machine now shows another, nothing is approved.")
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "A plan: many machines and what they become, in one `file`; - for standard input. It is checked as a whole first. See \"machine plan\". May be repeated.")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Don't ask: take the proposal for all that isn't given, and consent to wiping the disks it names.")
	o.targets.addFlags(cmd)
	o.dryRun.AddFlag(cmd)
	o.wait.AddFlags(cmd, "the machines are Ready", waitTimeout)
	o.print.AddFlags(cmd)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	completions := map[string]cobra.CompletionFunc{
		"cluster": lookup.CompleteClusters(o.env), "install-disk": lookup.CompleteDisks(o.env), "interface": lookup.CompleteLinks(o.env),
		"role": cobra.FixedCompletions([]string{"controlplane", "worker"}, cobra.ShellCompDirectiveNoFileComp),
	}
	for name, completion := range completions {
		_ = cmd.RegisterFlagCompletionFunc(name, completion)
	}
}

// check refuses wrong usage before anything is asked of the server.
func (o *approveOptions) check(cmd *cobra.Command, args []string) error {
	if len(o.files) > 0 {
		return o.checkFiles(cmd, args)
	}
	if err := o.targets.check(cmd, args); err != nil {
		return err
	}
	for _, err := range []error{o.print.Check(), o.wait.Check(), o.dryRun.Check()} {
		if err != nil {
			return err
		}
	}
	if cmd.Flags().Changed("vlan") && (o.choices.VLAN < 1 || o.choices.VLAN > 4094) {
		return cli.Usagef("--vlan: %d is not between 1 and 4094", o.choices.VLAN)
	}
	several := len(args) > 1 || o.targets.bySelector()
	for _, name := range []string{"hostname", "address", "fingerprint"} {
		if several && cmd.Flags().Changed(name) {
			return cli.Usagef("--%s is of one machine, but several are to be approved", name)
		}
	}
	if o.decided || o.yes || o.env.CanAsk() {
		return nil
	}
	return cli.Usagef("nobody can be asked here: say --role controlplane|worker and --install-disk DISK, or --yes to take the proposal; `%s` shows the disks",
		strings.TrimSpace(o.env.Name+" machine show "+strings.Join(args, " ")))
}

func (o *approveOptions) run(ctx context.Context, args []string) error {
	if len(o.files) > 0 {
		return o.runFiles(ctx)
	}
	targets, err := o.load(ctx, args)
	if err != nil {
		return err
	}
	plans, err := o.plan(ctx, targets)
	if err != nil {
		return err
	}
	approved, outcome := o.approveAll(ctx, plans)
	if err := o.follow(ctx, approved); err != nil {
		return err
	}
	return outcome.err()
}

// load reads all machines and clusters: what is proposed for one depends on the others.
func (o *approveOptions) load(ctx context.Context, args []string) ([]*v1alpha1.TalosMachine, error) {
	var err error
	if o.client, err = o.env.Client(); err != nil {
		return nil, err
	}
	if o.machines, err = listMachines(ctx, o.client); err != nil {
		return nil, err
	}
	clusters, err := o.client.IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	o.clusters = clusters.Items
	return o.targets.pick(o.machines, args)
}

func approvedBy(machine *v1alpha1.TalosMachine) string {
	if machine.Spec.Approval == nil || machine.Spec.Approval.By == "" {
		return ""
	}
	return ", by " + machine.Spec.Approval.By
}

// follow watches what was approved until it is Ready, where that is wanted.
func (o *approveOptions) follow(ctx context.Context, approved []*v1alpha1.TalosMachine) error {
	if len(approved) == 0 || o.dryRun.On() || !o.wait.Wanted(o.env) {
		return nil
	}
	names := progress.Names(approved)
	board := progress.NewMachines(names)
	if err := o.wait.Follow(ctx, o.env, board, progress.WatchMachines(o.client, board, o.env.Now), showAgain(o.env, names)); err != nil {
		return err
	}
	return o.prove(ctx, names)
}

// prove tells, from what the machines say themselves, which disk each was installed on and which Node it became.
func (o *approveOptions) prove(ctx context.Context, names []string) error {
	for _, name := range names {
		machine, err := o.client.IchorV1alpha1().TalosMachines().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.env.Infof("%s", screen.Proof(machine))
	}
	return nil
}
