// SPDX-License-Identifier: Apache-2.0

// Package reference writes the command reference under docs/cli from the commands themselves: a page for each command of
// the first level, with its verbs, and an index with what holds for all.
package reference

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// flagWidth is where the text of flags is wrapped.
const flagWidth = 110

const note = "<!-- Generated from the commands by `go generate ./cmd/ichor/...`; don't edit. -->\n\n"

// Pages makes all pages, by file name.
func Pages(root *cobra.Command) map[string]string {
	root.InitDefaultCompletionCmd()
	pages := map[string]string{"README.md": index(root)}
	for _, cmd := range documented(root) {
		var page strings.Builder
		page.WriteString(note)
		write(&page, cmd, 1)
		pages[cmd.Name()+".md"] = page.String()
	}
	return pages
}

func documented(parent *cobra.Command) []*cobra.Command {
	var commands []*cobra.Command
	for _, cmd := range parent.Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" && cmd.Name() != "completion" && cmd.Name() != "options" {
			commands = append(commands, cmd)
		}
	}
	return commands
}

func index(root *cobra.Command) string {
	var page strings.Builder
	page.WriteString(note)
	fmt.Fprintf(&page, "# %s\n\n%s\n\n", root.CommandPath(), root.Long)
	page.WriteString("Called as `kubectl-ichor` it is the kubectl plugin `kubectl ichor`; `kubectl_complete-ichor` completes for that. `ichor completion --help` tells how a shell completes.\n\n")
	page.WriteString("| command | |\n|---|---|\n")
	for _, cmd := range documented(root) {
		rows(&page, cmd, cmd.Name()+".md")
	}
	for _, topic := range root.Commands() {
		if topic.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(&page, "\n## %s\n\n```\n%s\n```\n", topic.Short, topic.Long)
		}
	}
	fmt.Fprintf(&page, "\n## Flags of every command\n\n```\n%s```\n", root.PersistentFlags().FlagUsagesWrapped(flagWidth))
	return page.String()
}

func rows(page *strings.Builder, cmd *cobra.Command, file string) {
	if verbs := documented(cmd); len(verbs) > 0 {
		for _, verb := range verbs {
			rows(page, verb, file)
		}
		if cmd.Annotations[cli.VerbToo] == "" {
			return
		}
	}
	fmt.Fprintf(page, "| [`%s`](%s#%s) | %s |\n", cmd.CommandPath(), file, strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
}

func write(page *strings.Builder, cmd *cobra.Command, level int) {
	fmt.Fprintf(page, "%s %s\n\n", strings.Repeat("#", level), cmd.CommandPath())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(page, "%s\n", text)
	verbs := documented(cmd)
	if len(verbs) == 0 || cmd.Annotations[cli.VerbToo] != "" {
		fmt.Fprintf(page, "\n```\n%s\n```\n", cmd.UseLine())
		if cmd.HasExample() {
			fmt.Fprintf(page, "\nExamples:\n\n```\n%s\n```\n", cmd.Example)
		}
		cmd.InitDefaultHelpFlag()
		fmt.Fprintf(page, "\nFlags:\n\n```\n%s```\n", cmd.LocalNonPersistentFlags().FlagUsagesWrapped(flagWidth))
	}
	for _, verb := range verbs {
		page.WriteString("\n")
		write(page, verb, level+1)
	}
}
