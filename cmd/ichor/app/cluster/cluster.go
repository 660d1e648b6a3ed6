// SPDX-License-Identifier: Apache-2.0

// Package cluster holds the verbs of "ichor cluster", one a file.
package cluster

import (
	"github.com/spf13/cobra"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// NewCommand makes "ichor cluster".
func NewCommand(env *cli.Env) *cobra.Command {
	discovery := cli.Group("discovery", "Say where to look for new machines, and look",
		newDiscoveryAdd(env), newDiscoveryRemove(env), newDiscoveryList(env), newDiscoveryScan(env))
	return cli.Group("cluster", "List, show and remove clusters, and where they look for machines",
		newList(env), newShow(env), newRemove(env), discovery)
}
