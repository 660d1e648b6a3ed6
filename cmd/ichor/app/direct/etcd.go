// SPDX-License-Identifier: Apache-2.0

// Package direct holds the commands that work over Talos alone: "ichor etcd" and "ichor snapshot", and the direct form
// of "ichor status".
package direct

import (
	"context"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/direct"
)

// Status looks at everything, for "ichor --direct status".
func Status(ctx context.Context, env *cli.Env, options *direct.Options, format direct.Format) error {
	report, err := look(ctx, env, options)
	if err != nil {
		return err
	}
	if err := format.Print(env, report, direct.StatusText(report, env.OutStyle())); err != nil {
		return err
	}
	return report.Failed()
}

// NewEtcd makes "ichor etcd".
func NewEtcd(env *cli.Env, options *direct.Options) *cobra.Command {
	var format direct.Format
	cmd := direct.Only(&cobra.Command{
		Use:   "etcd",
		Short: "Members, quorum and alarms of etcd, over Talos alone",
		Long: `Show the members of etcd, whether they have a quorum, and its alarms, asked of each machine over Talos alone: it works when
the Kubernetes API or etcd's quorum is gone. Without a quorum etcd lists no members; then they are the control planes
that Talos' discovery knows. It needs the cluster's secrets bundle, makes itself a certificate of role os:reader from it
for a quarter of an hour, and changes nothing.`,
		Example: cli.Examples(env, `
			ichor --direct --bundle bundle.yaml --nodes 10.0.0.11,10.0.0.12,10.0.0.13 etcd
			# for a program
			ichor --direct --bundle bundle.yaml --nodes 10.0.0.11 etcd -o json`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			report, err := look(cmd.Context(), env, options)
			if err != nil {
				return err
			}
			if err := format.Print(env, report.Etcd, direct.EtcdText(report, env.OutStyle())); err != nil {
				return err
			}
			return report.Failed()
		},
	})
	format.AddFlag(cmd, "json or yaml.")
	return cmd
}

func look(ctx context.Context, env *cli.Env, options *direct.Options) (*direct.Report, error) {
	session, err := direct.Open(ctx, env, options)
	if err != nil {
		return nil, err
	}
	return session.Look(ctx)
}
