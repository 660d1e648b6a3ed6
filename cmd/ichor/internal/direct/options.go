// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// Options are the flags of a direct look.
type Options struct {
	// On is --direct.
	On bool
	// Bundle is the file with the secrets bundle, "-" for standard input.
	Bundle string
	// Identity is a file with age identities, for a bundle that is encrypted for one of them.
	Identity string
	// Nodes are addresses or names of machines.
	Nodes []string
}

// AddFlags adds the flags; they belong to the whole program, so that they may stand before the command.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.On, "direct", false, "Break-glass: ask the machines over Talos alone, with a secrets bundle, when the Kubernetes API or etcd's quorum is gone. For status, etcd and snapshot.")
	flags.StringVar(&o.Bundle, "bundle", "", "With --direct: the file with the cluster's secrets bundle, plain or encrypted with age; - reads it from standard input.")
	flags.StringVar(&o.Identity, "identity", "", "With --direct: a file with the age identity that the bundle is encrypted for. For a passphrase you are asked.")
	flags.StringSliceVar(&o.Nodes, "nodes", nil, "With --direct: addresses or names of machines, control planes first of all; the others of those they know. Without it, the host of the kubeconfig's server.")
}

// How a command stands to --direct: with it or without, or only with it. All others refuse it.
const (
	annotation = "ichor.maesh.dev/direct"
	also       = "also"
	only       = "only"
)

// Also marks a command that has a direct form.
func Also(cmd *cobra.Command) *cobra.Command { return mark(cmd, also) }

// Only marks a command that has no other form.
func Only(cmd *cobra.Command) *cobra.Command { return mark(cmd, only) }

func mark(cmd *cobra.Command, how string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[annotation] = how
	return cmd
}

// Check refuses flags that don't go together, and commands that don't go with them.
func (o *Options) Check(cmd *cobra.Command) error {
	how := cmd.Annotations[annotation]
	if !o.On {
		for _, flag := range []struct {
			name  string
			given bool
		}{{"bundle", o.Bundle != ""}, {"identity", o.Identity != ""}, {"nodes", len(o.Nodes) > 0}} {
			if flag.given {
				return cli.Usagef("--%s is for --direct", flag.name)
			}
		}
		if how == only {
			return cli.Usagef("%s works over Talos alone: add --direct --bundle FILE, the file with the cluster's secrets bundle", cmd.CommandPath())
		}
		return nil
	}
	switch {
	case how == "":
		return cli.Usagef("%s has no form without the Kubernetes API: --direct is for status, etcd and snapshot", cmd.CommandPath())
	case o.Bundle == "":
		return cli.Usagef("--direct needs --bundle FILE, the file with the cluster's secrets bundle")
	}
	return nil
}

// invocation is how the program was called, up to the command: what is proposed to be typed begins with it.
func (o *Options) invocation(env *cli.Env) string {
	words := []string{env.Name, "--direct", "--bundle", quote(o.Bundle)}
	if o.Identity != "" {
		words = append(words, "--identity", quote(o.Identity))
	}
	if len(o.Nodes) > 0 {
		words = append(words, "--nodes", quote(strings.Join(o.Nodes, ",")))
	}
	if file := env.Config.KubeConfig; file != nil && *file != "" {
		words = append(words, "--kubeconfig", quote(*file))
	}
	return strings.Join(words, " ")
}

// quote makes one word of a shell's command line of a text.
func quote(text string) string {
	const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=@%+"
	if text != "" && strings.Trim(text, harmless) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
