// SPDX-License-Identifier: Apache-2.0

// Package app puts the commands of ichor together. It is started under three names: ichor, kubectl-ichor (the kubectl
// plugin, whose usage then says "kubectl ichor") and kubectl_complete-ichor (which completes for kubectl).
package app

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/cmd/ichor/app/cluster"
	appdirect "maesh.dev/ichor/cmd/ichor/app/direct"
	"maesh.dev/ichor/cmd/ichor/app/machine"
	"maesh.dev/ichor/cmd/ichor/app/operation"
	"maesh.dev/ichor/cmd/ichor/app/patch"
	"maesh.dev/ichor/cmd/ichor/app/status"
	"maesh.dev/ichor/cmd/ichor/app/upgrade"
	"maesh.dev/ichor/cmd/ichor/app/version"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/direct"
)

const (
	plugin           = "kubectl-ichor"
	pluginCompletion = "kubectl_complete-ichor"
)

// Run runs the program and returns its exit status. The first argument is the name it was called by.
func Run(ctx context.Context, env *cli.Env, args []string) int {
	words := []string{}
	env.Name = "ichor"
	if len(args) > 0 {
		words = args[1:]
		switch strings.TrimSuffix(filepath.Base(args[0]), ".exe") {
		case plugin:
			env.Name = "kubectl ichor"
		case pluginCompletion:
			env.Name = "kubectl ichor"
			words = append([]string{cobra.ShellCompRequestCmd}, words...)
		}
	}
	root := NewCommand(env)
	root.SetArgs(words)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return cli.ExitDone
	}
	if ctx.Err() != nil && context.Cause(ctx) != nil && cli.Code(err) == cli.ExitFailed {
		err = cli.WithCode(cli.ExitInterrupted, context.Cause(ctx))
	}
	if errors.Is(err, cli.ErrStopped) || errors.Is(err, cli.ErrDiffers) {
		return cli.Code(err)
	}
	for i, line := range cli.Explain(err) {
		if i == 0 {
			line = "error: " + line
		}
		env.Infof("%s", line)
	}
	return cli.Code(err)
}

// NewCommand makes the root command.
func NewCommand(env *cli.Env) *cobra.Command {
	verbosity := 0
	options := &direct.Options{}
	root := &cobra.Command{
		Use:   "ichor",
		Short: "Manage Talos Linux clusters from Kubernetes",
		Long: `Manage Talos Linux clusters from Kubernetes.

Machines that wait in maintenance mode show up as TalosMachines; approve one, and Ichor installs it and joins it to the
cluster. All that this program does can be done with kubectl on the same resources; it adds proposals, progress and
explanations, and a look at the machines themselves for the day when there is no Kubernetes API (--direct).`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: env.Name},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.Check(cmd); err != nil {
				return err
			}
			if env.SetVerbosity == nil {
				return nil
			}
			return env.SetVerbosity(verbosity)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.UnknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.Usagef("%w; see `%s --help`", err, cmd.CommandPath())
	})
	addGlobalFlags(root.PersistentFlags(), env, &verbosity)
	options.AddFlags(root.PersistentFlags())
	root.AddGroup(&cobra.Group{ID: "work", Title: "Commands:"}, &cobra.Group{ID: "direct", Title: "Break-glass, without the Kubernetes API:"}, &cobra.Group{ID: "about", Title: "About this program:"})
	for _, made := range []*cobra.Command{status.NewCommand(env, options), cluster.NewCommand(env), machine.NewCommand(env), operation.NewCommand(env), patch.NewCommand(env), upgrade.NewCommand(env)} {
		made.GroupID = "work"
		root.AddCommand(made)
	}
	for _, made := range []*cobra.Command{appdirect.NewEtcd(env, options), appdirect.NewSnapshot(env, options)} {
		made.GroupID = "direct"
		root.AddCommand(made)
	}
	for _, made := range []*cobra.Command{version.NewCommand(env), newOptions(env)} {
		made.GroupID = "about"
		root.AddCommand(made)
	}
	root.AddCommand(exitStatusTopic())
	root.SetCompletionCommandGroupID("about")
	root.SetHelpCommandGroupID("about")
	root.SetUsageTemplate(usageTemplate)
	return root
}

func addGlobalFlags(flags *pflag.FlagSet, env *cli.Env, verbosity *int) {
	config := genericclioptions.NewConfigFlags(true)
	config.Namespace = nil   // everything of Ichor's is cluster-scoped
	config.ClusterName = nil // --cluster is a TalosCluster here
	config.BearerToken = nil // no secrets in arguments, where a shell's history keeps them
	config.CacheDir = nil    // no discovery is cached
	if config.Timeout != nil {
		config.Timeout = ptr.To("0")
	}
	env.Config = config
	config.AddFlags(flags)
	flags.BoolVar(&env.Accessible, "accessible", false, "For screen readers: ask line by line and report line by line, without boxes and redraws.")
	flags.IntVarP(verbosity, "v", "v", 0, "How much to tell of the requests that are made: 6 and up show each.")
}
