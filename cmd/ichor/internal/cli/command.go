// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// VerbToo marks a command that holds others and does something itself, so that its help and its page show both.
const VerbToo = "verb"

// Group makes a command that only holds others: alone it prints its help, with an unknown word it refuses.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return UnknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// UnknownCommand refuses a word that is no command, and proposes what may have been meant.
func UnknownCommand(cmd *cobra.Command, word string) error {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if close := cmd.SuggestionsFor(word); len(close) > 0 {
		return Usagef("%s has no command %q; did you mean %s?", cmd.CommandPath(), word, strings.Join(close, " or "))
	}
	return Usagef("%s has no command %q; see `%s --help`", cmd.CommandPath(), word, cmd.CommandPath())
}

// Examples fills the program's name into examples, which are written with "ichor".
func Examples(env *Env, text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if rest, found := strings.CutPrefix(line, "ichor "); found {
			line = env.Name + " " + rest
		}
		if line != "" {
			line = "  " + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// NoArgs refuses words after a command that takes none.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no %q; see `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// AtLeast wants some words after a command, and says what they are.
func AtLeast(count int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < count {
			return Usagef("%s needs %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

// Exactly wants a number of words after a command, and says what they are.
func Exactly(count int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != count {
			return Usagef("%s needs %s, got %d; see `%s --help`", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// AtMost allows a number of words after a command.
func AtMost(count int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > count {
			return Usagef("%s takes %s, got %d; see `%s --help`", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}
