// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"encoding/json"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// Format is -o of the direct commands. What they print is no object of an API, so there are no other formats.
type Format string

// AddFlag adds -o.
func (f *Format) AddFlag(cmd *cobra.Command, what string) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "", what)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// Check refuses a format that there isn't, before any work is done.
func (f Format) Check() error {
	if f != "" && f != "json" && f != "yaml" {
		return cli.Usagef("--output: %q is neither json nor yaml", string(f))
	}
	return nil
}

// Print prints a value in the format or, without one, the text for people.
func (f Format) Print(env *cli.Env, value any, text string) error {
	out := []byte(text)
	var err error
	switch f {
	case "json":
		if out, err = json.MarshalIndent(value, "", "    "); err == nil {
			out = append(out, '\n')
		}
	case "yaml":
		out, err = yaml.Marshal(value)
	}
	if err != nil {
		return err
	}
	_, err = env.Out.Write(out)
	return err
}
