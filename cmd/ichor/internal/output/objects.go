// SPDX-License-Identifier: Apache-2.0

package output

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/client/clientset/versioned/scheme"
)

// Objects prints single objects: what a command shows or has just changed.
type Objects struct {
	flags *genericclioptions.PrintFlags
}

// NewObjects prints what a command did to an object, for instance "approved"; empty for a command that only shows.
func NewObjects(verbed string) *Objects {
	return &Objects{flags: genericclioptions.NewPrintFlags(verbed).WithTypeSetter(scheme.Scheme)}
}

// AddFlags adds -o and what belongs to it.
func (o *Objects) AddFlags(cmd *cobra.Command) {
	o.flags.AddFlags(cmd)
	formats := o.flags.AllowedFormats()
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Asked is true when a format was asked for.
func (o *Objects) Asked() bool {
	template := o.flags.TemplatePrinterFlags.TemplateArgument
	return *o.flags.OutputFormat != "" || (template != nil && *template != "")
}

// Check refuses a format that there isn't, before any work is done.
func (o *Objects) Check() error {
	_, err := o.flags.ToPrinter()
	return cli.WithCode(cli.ExitUsage, err)
}

// Print prints an object on standard output. Note is added to "TYPE/NAME verbed", for instance " (server dry run)".
func (o *Objects) Print(env *cli.Env, object runtime.Object, note string) error {
	return o.print(env, object, o.flags.NamePrintFlags.Operation+note)
}

// PrintUnchanged prints an object that there was nothing to do about.
func (o *Objects) PrintUnchanged(env *cli.Env, object runtime.Object) error {
	return o.print(env, object, "unchanged")
}

func (o *Objects) print(env *cli.Env, object runtime.Object, verbed string) error {
	flags, named := *o.flags, *o.flags.NamePrintFlags
	named.Operation = verbed
	flags.NamePrintFlags = &named
	printer, err := flags.ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(object, env.Out)
}
