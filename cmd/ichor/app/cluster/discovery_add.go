// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func newDiscoveryAdd(env *cli.Env) *cobra.Command {
	edit := &discoveryEdit{
		env: env, print: output.NewObjects("configured"), change: add,
		needed: func(discovery *v1alpha1.Discovery, wanted place) bool { return !isListed(discovery, wanted) },
		verbed: "added", already: "is looked at already, unchanged",
	}
	cmd := &cobra.Command{
		Use:   "add CIDR|ADDRESS...",
		Short: "Look for machines in subnets and at addresses",
		Long:  "Look for machines in subnets (the Talos API's port is tried at each address) and at single addresses, now and at every interval.",
		Example: cli.Examples(env, `
			ichor cluster discovery add 10.0.0.0/24
			ichor cluster discovery add 10.0.9.7 10.0.9.8
		`),
		Args: cli.AtLeast(1, "a subnet or an address"),
		RunE: func(cmd *cobra.Command, args []string) error { return edit.run(cmd.Context(), args) },
	}
	edit.addFlags(cmd)
	return cmd
}
