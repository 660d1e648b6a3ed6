// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/test/hollow/fleet"
)

func fleetCommand() *cobra.Command {
	var (
		o     fleet.GenerateOptions
		first string
	)
	c := &cobra.Command{
		Use: "fleet", Short: "Print a fleet file with machines made up for you", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := netip.ParseAddr(first)
			if err != nil {
				return fmt.Errorf("--first: %w", err)
			}
			o.First = a
			f, err := fleet.Generate(o)
			if err != nil {
				return err
			}
			text, err := f.Encode()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().IntVar(&o.Machines, "machines", 5, "how many")
	c.Flags().StringVar(&first, "first", "127.0.16.11", "address of the first")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "another seed makes other machines")
	c.Flags().StringVar(&o.NamePrefix, "name", "hollow", "start of the names")
	c.Flags().StringVar(&o.TalosVersion, "talos-version", "", "version of the boot media")
	return c
}
