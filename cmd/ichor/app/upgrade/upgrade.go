// SPDX-License-Identifier: Apache-2.0

// Package upgrade holds the verbs of "ichor upgrade", one a file for each thing that has a version.
package upgrade

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// NewCommand makes "ichor upgrade".
func NewCommand(env *cli.Env) *cobra.Command {
	return cli.Group("upgrade", "Upgrade clusters, machine by machine, with a plan that is shown first", newTalos(env), newKubernetes(env))
}
