// SPDX-License-Identifier: Apache-2.0

// Package status holds "ichor status".
package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/overview"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
)

// NewCommand makes "ichor status".
func NewCommand(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "What waits for you, what goes on, and what is wrong, on one screen",
		Long: "Show on one screen the clusters and their machines, what waits for a person, what goes on by itself (the longest first), " +
			"and what is wrong, with what to do about each. For programs: `kubectl get ichor -o json`.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), env) },
	}
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
	look := overview.Look(clusters.Items, machines, env.Name)
	_, err = fmt.Fprint(env.Out, screen.Status(clusters.Items, look, len(machines), env.Now(), env.OutStyle()))
	return err
}
