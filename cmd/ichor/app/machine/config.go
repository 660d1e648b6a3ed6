// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

type configOptions struct {
	env        *cli.Env
	provenance bool
	print      *output.Objects
}

func newConfig(env *cli.Env) *cobra.Command {
	options := &configOptions{env: env, print: output.NewObjects("")}
	cmd := &cobra.Command{
		Use:   "config NAME",
		Short: "Show the configuration that a machine is to have, what was rendered before, and bring what waits for a reboot",
		Long: "Show the configuration that a machine is to have, as Ichor renders it from the cluster, its patches and what was approved. " +
			"Every secret is replaced by asterisks.\n\n" + namesHelp,
		Example: cli.Examples(env, `
			ichor machine config cp-1

			# Who set each field: the base, a patch or approval
			ichor machine config cp-1 --provenance
		`),
		Annotations:       map[string]string{cli.VerbToo: "true"},
		Args:              cli.Exactly(1, "a machine"),
		ValidArgsFunction: lookup.CompleteMachines(env, nil),
		RunE:              func(cmd *cobra.Command, args []string) error { return options.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&options.provenance, "provenance", false, "Show who set each field instead.")
	options.print.AddFlags(cmd)
	cmd.AddCommand(newConfigHistory(env), newConfigDiff(env), newConfigRollback(env), newConfigRollout(env))
	return cmd
}

func (o *configOptions) run(ctx context.Context, name string) error {
	if err := o.print.Check(); err != nil {
		return err
	}
	client, err := o.env.Client()
	if err != nil {
		return err
	}
	machine, err := lookup.FetchMachine(ctx, client, name)
	if err != nil {
		return err
	}
	config := &v1alpha1.TalosMachineConfig{}
	if err := client.IchorV1alpha1().RESTClient().Get().Resource("talosmachines").Name(machine.Name).SubResource("config").
		Param("provenance", strconv.FormatBool(o.provenance)).Do(ctx).Into(config); err != nil {
		return err
	}
	if o.print.Asked() {
		return o.print.Print(o.env, config, "")
	}
	for _, warning := range config.Warnings {
		o.env.Infof("warning: %s", warning)
	}
	text := config.Text
	if o.provenance {
		text = strings.Join(provenance(config), "\n") + "\n"
	}
	_, err = fmt.Fprint(o.env.Out, text)
	return err
}

// provenance is a table of who set each field.
func provenance(config *v1alpha1.TalosMachineConfig) []string {
	rows := [][]string{{"DOCUMENT", "FIELD", "SET BY", "INSTEAD OF"}}
	for _, field := range config.Provenance {
		by := field.SetBy
		if field.Patch != "" {
			by += " " + field.Patch
		}
		rows = append(rows, []string{field.Document, field.Path, by, strings.Join(field.Overrode, ", ")})
	}
	return screen.Columns(rows)
}
