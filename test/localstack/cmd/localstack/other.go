// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/test/localstack"
)

func statusCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say what runs; exits with 1 unless the stack is ready",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := existing(*dir)
			if err != nil {
				return err
			}
			processes, err := d.Processes()
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if len(processes) == 0 {
				fmt.Fprintf(out, "stack %s: not running\n", d)
				return errNotReady
			}
			since, unready := os.ReadFile(d.Ready())
			if unready != nil {
				fmt.Fprintf(out, "stack %s: starting\n\n", d)
			} else {
				fmt.Fprintf(out, "stack %s: ready since %s\n\n", d, strings.TrimSpace(string(since)))
			}
			table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(table, "PROCESS\tPID\tAGE\tLOG")
			for _, p := range processes {
				fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", p.Name, p.PID, time.Since(p.Since).Round(time.Second), d.Log(p.Name))
			}
			if err := table.Flush(); err != nil {
				return err
			}
			if unready != nil {
				return errNotReady
			}
			return nil
		},
	}
}

func downCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the stack; its machines keep their disks for the next up",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := existing(*dir)
			if err != nil {
				return err
			}
			ran, err := localstack.Down(c.Context(), d)
			if err != nil {
				return err
			}
			if !ran {
				fmt.Fprintf(c.OutOrStdout(), "stack %s: not running\n", d)
				return nil
			}
			fmt.Fprintf(c.OutOrStdout(), "stack %s: ended\n", d)
			return nil
		},
	}
}

func envCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: `Print the environment for a shell: eval "$(localstack env)"`,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := existing(*dir)
			if err != nil {
				return err
			}
			bin, err := programs()
			if err != nil {
				return err
			}
			text, err := localstack.Environment(d, bin)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
}
