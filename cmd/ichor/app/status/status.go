// SPDX-License-Identifier: Apache-2.0

// Package status holds "ichor status".
package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appdirect "maesh.dev/ichor/cmd/ichor/app/direct"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/direct"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
)

// NewCommand makes "ichor status".
func NewCommand(env *cli.Env, options *direct.Options) *cobra.Command {
	var format direct.Format
	cmd := direct.Also(&cobra.Command{
		Use:   "status",
		Short: "What waits for you, what goes on, and what is wrong, on one screen",
		Long: "Show on one screen the clusters, their machines and the operations on them, what waits for a person, what goes on by itself (the longest first), " +
			"and what is wrong, with what to do about each. For programs: `kubectl get ichor -o json`.\n\n" +
			"With --direct --bundle FILE it asks the machines over Talos alone, for the day when the Kubernetes API or etcd's quorum is gone: " +
			"what answers, the quorum of etcd, what is lost, and the next safe move. It changes nothing.",
		Example: cli.Examples(env, `
			ichor status
			# the Kubernetes API is gone
			ichor --direct --bundle bundle.yaml --nodes 10.0.0.11,10.0.0.12,10.0.0.13 status`),
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			if options.On {
				return appdirect.Status(cmd.Context(), env, options, format)
			}
			if format != "" {
				return cli.Usagef("--output is for --direct; without it, `kubectl get ichor -o %s` has everything", string(format))
			}
			return run(cmd.Context(), env)
		},
	})
	format.AddFlag(cmd, "With --direct: json or yaml.")
	return cmd
}

func run(ctx context.Context, env *cli.Env) error {
	client, err := env.Client()
	if err != nil {
		return err
	}
	clusters, err := client.IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	machines, err := lookup.Machines(ctx, client, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(clusters.Items) == 0 && len(machines) == 0 {
		return errors.New("there is no cluster and no machine yet; `kubectl explain taloscluster` tells how to describe a cluster")
	}
	operations, err := lookup.Operations(ctx, client)
	if apierrors.IsForbidden(err) {
		env.Infof("You may not list operations, so none is shown.")
	} else if err != nil {
		return err
	}
	look := overview.Look(clusters.Items, operations, machines, env.Name)
	_, err = fmt.Fprint(env.Out, screen.Status(clusters.Items, look, len(machines), env.Now(), env.OutStyle()))
	return err
}
