// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
)

// talosServices are those that every machine has, for completion.
var talosServices = []string{"apid", "auditd", "containerd", "controller-runtime", "cri", "dashboard", "etcd", "kubelet", "machined", "syslogd", "trustd", "udevd"}

// logOptions are what the two verbs that read logs share.
type logOptions struct {
	env    *cli.Env
	follow bool
	tail   int64
	// service is empty for the kernel.
	service string
}

func newLogs(env *cli.Env) *cobra.Command {
	options := &logOptions{env: env}
	complete := lookup.CompleteMachines(env, isApproved)
	cmd := &cobra.Command{
		Use:   "logs NAME SERVICE",
		Short: "Show what one of Talos' services on a machine logs",
		Long: "Show what one of Talos' services on a machine logs: kubelet, etcd, apid, machined, containerd, cri, and ext-NAME of an extension. " +
			"It is read through the Kubernetes API: it takes the right to get talosmachines/log, and no talosconfig.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			ichor machine logs worker-3 kubelet --tail 100
			ichor machine logs cp-1 etcd --follow
		`),
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return complete(cmd, args, typed)
			case 1:
				return slices.Clone(talosServices), cobra.ShellCompDirectiveNoFileComp
			default:
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			options.service = args[1]
			return options.run(cmd.Context(), args[0])
		},
	}
	options.addFlags(cmd, "Show so many of the last lines; -1 shows all.")
	return cmd
}

func newDmesg(env *cli.Env) *cobra.Command {
	options := &logOptions{env: env}
	cmd := &cobra.Command{
		Use:   "dmesg NAME",
		Short: "Show the messages of a machine's kernel",
		Long: "Show the messages of a machine's kernel since it booted. They are read through the Kubernetes API: it takes the right to get " +
			"talosmachines/log, and no talosconfig.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			ichor machine dmesg worker-3 --tail 50
			ichor machine dmesg worker-3 --follow --tail 0
		`),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: lookup.CompleteMachines(env, isApproved),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	options.addFlags(cmd, "Show so many of the last lines; -1 shows all. With --follow, 0 shows those from now on, and other numbers aren't possible.")
	return cmd
}

func (o *logOptions) addFlags(cmd *cobra.Command, tail string) {
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "Go on with what comes, until Ctrl-C.")
	cmd.Flags().Int64Var(&o.tail, "tail", -1, tail)
}

func (o *logOptions) run(ctx context.Context, name string) error {
	if o.tail < -1 {
		return cli.Usagef("--tail: %d is no number of lines", o.tail)
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machines, err := fetchAll(ctx, client, []string{name})
	if err != nil {
		return err
	}
	request := client.IchorV1alpha1().RESTClient().Get().Resource("talosmachines").Name(machines[0].Name).SubResource("log")
	if o.service != "" {
		request = request.Param("service", o.service)
	} else {
		request = request.Param("kernel", "true")
	}
	if o.follow {
		request = request.Param("follow", "true")
	}
	if o.tail >= 0 {
		request = request.Param("tailLines", strconv.FormatInt(o.tail, 10))
	}
	stream, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(o.env.Out, stream)
	err = errors.Join(err, stream.Close())
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the log of machine %s ended early: %w", name, err)
	default:
		return nil
	}
}
