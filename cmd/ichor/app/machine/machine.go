// SPDX-License-Identifier: Apache-2.0

// Package machine holds the verbs of "ichor machine", one a file: each calls the API, asks where a person must decide, and
// prints. What is decided and what is drawn lives in cmd/ichor/internal.
package machine

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// NewCommand makes "ichor machine".
func NewCommand(env *cli.Env) *cobra.Command {
	return cli.Group("machine", "List, show, plan, approve, reject, remove, reboot and reclaim machines, and look at their configurations and logs",
		newList(env), newShow(env), newPlan(env), newApprove(env), newReject(env), newResolve(env), newRemove(env), newReboot(env), newShutdown(env), newReclaim(env), newConfig(env), newDrift(env),
		newLogs(env), newDmesg(env))
}
