// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/test/hollow/control"
)

func ctlCommand() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use:     "ctl [--control SOCKET] COMMAND [MACHINE [ARGS]]",
		Short:   "Look at machines, switch them off and on, make them misbehave",
		Long:    "Commands (status without a machine shows all):\n" + control.Usage(),
		Example: "  hollow ctl status\n  hollow ctl power-off hollow-002\n  hollow ctl slow hollow-002 3s",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, rest := "", []string(nil)
			if len(args) > 1 {
				machine, rest = args[1], args[2:]
			}
			result, err := control.NewClient(socket).Do(cmd.Context(), args[0], machine, rest...)
			if err != nil {
				return err
			}
			text, err := yaml.JSONToYAML(result)
			if err != nil {
				return fmt.Errorf("show the answer: %w", err)
			}
			if string(text) == "{}\n" {
				return nil
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().StringVar(&socket, "control", ".local/run/hollow.sock", "the `SOCKET` of the running process")
	return c
}
