// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// usageTemplate is cobra's, but for the global flags: there are twenty of kubectl's, so they are listed by "options".
const usageTemplate = `Usage:{{if .HasAvailableSubCommands}}{{if index .Annotations "verb"}}
  {{.UseLine}}{{end}}
  {{.CommandPath}} [command]{{else if .Runnable}}
  {{.UseLine}}{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{if eq (len .Groups) 0}}

Commands:{{range $cmds}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{else}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help")))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{end}}{{if and .HasAvailableLocalFlags .HasParent (or (index .Annotations "verb") (not .HasAvailableSubCommands))}}

Flags:
{{.LocalNonPersistentFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

Topics:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more about a command.{{else}}
{{end}}
Use "{{.Root.CommandPath}} options" for the flags that every command has.
`

func newOptions(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command has",
		Long: "List the flags that every command has. They are kubectl's, and mean the same; --token isn't among them, because no secret belongs on a command line, " +
			"nor are --namespace and kubectl's --cluster, because everything of Ichor's is cluster-scoped and --cluster names a TalosCluster.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := env.Out.Write([]byte("Flags of every command:\n\n" + cmd.InheritedFlags().FlagUsagesWrapped(100)))
			return err
		},
	}
}

// exitStatusTopic is a help topic: a command that can't be run.
func exitStatusTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-status",
		Short: "What the exit statuses mean",
		Long: `Exit statuses:

  0    done, or there was nothing to do
  1    failed; of several machines, one is enough
  2    cancelled, consent refused, or wrong usage
  3    timed out while the work goes on; the message has the command to watch it with
  4    not signed in, or forbidden
  5    blocked: a check before the work said no
  130  interrupted; work that was started goes on

Commands that show a difference end as diff does: 0 without one, 1 with one, above 1 when they fail.`,
	}
}
