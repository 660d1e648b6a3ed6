// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/test/hollow/control"
)

func ctlCommand() *cobra.Command {
	var state string
	c := &cobra.Command{
		Use:   "ctl --state DIR [MACHINE COMMAND [ARGS]]",
		Short: "Look at machines, switch them off and on, make them misbehave",
		Long:  "Without a machine it shows the status of all. Commands:\n" + control.Usage(),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := control.Request{Command: "status"}
			switch {
			case len(args) == 1:
				request.Machine = args[0]
			case len(args) > 1:
				request = control.Request{Machine: args[0], Command: args[1], Args: args[2:]}
			}
			var result json.RawMessage
			if err := control.Call(cmd.Context(), filepath.Join(state, socketName), request, &result); err != nil {
				return err
			}
			text, err := yaml.JSONToYAML(result)
			if err != nil || string(text) == "{}\n" {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().StringVar(&state, "state", ".local/hollow", "the state folder of the running process")
	return c
}
