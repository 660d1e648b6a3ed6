// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

func newConfig(env *cli.Env) *cobra.Command {
	return cli.Group("config", "Show what was rendered for a machine, and in what it differs", newConfigHistory(env), newConfigDiff(env), newConfigRollback(env))
}
