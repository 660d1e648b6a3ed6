// SPDX-License-Identifier: Apache-2.0

// Package app is the command line of ichor-apiserver: flags, then options, then a running server.
package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/util/compatibility"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"

	"maesh.dev/ichor/apiserver"
)

// NewCommand returns the command. It runs until the context ends.
func NewCommand(ctx context.Context) *cobra.Command {
	options, err := apiserver.NewOptions()
	utilruntime.Must(err)
	logging := logs.NewOptions()
	cmd := &cobra.Command{
		Use:   "ichor-apiserver",
		Short: "Serve the resources of ichor.maesh.dev behind the aggregation layer of a kube-apiserver",
		Long: `ichor-apiserver serves TalosClusters and TalosMachines to a kube-apiserver's aggregation layer. It stores them in etcd,
asks the kube-apiserver who a user is and what he may do, and never talks to a machine.`,
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return compatibility.DefaultComponentGlobalsRegistry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			return Run(cmd.Context(), options)
		},
	}
	cmd.SetContext(ctx)
	sets := cliflag.NamedFlagSets{}
	options.AddFlags(&sets)
	compatibility.DefaultComponentGlobalsRegistry.AddFlags(sets.FlagSet("versions"))
	logsapi.AddFlags(logging, sets.FlagSet("logs"))
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}

// Run serves until the context ends. With an embedded etcd, that is started before and stopped after the server.
func Run(ctx context.Context, options *apiserver.Options) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if options.EtcdEmbeddedDir != "" {
		etcd, err := apiserver.StartEmbeddedEtcd(ctx, options.EtcdEmbeddedDir)
		if err != nil {
			return err
		}
		defer etcd.Close()
		options.UseEmbeddedEtcd(etcd)
		go func() {
			select {
			case failure := <-etcd.Err():
				cancel(fmt.Errorf("embedded etcd: %w", failure))
			case <-ctx.Done():
			}
		}()
	}
	config, err := options.Config(ctx)
	if err != nil {
		return err
	}
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	err = server.Run(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}
