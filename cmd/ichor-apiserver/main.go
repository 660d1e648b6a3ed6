// SPDX-License-Identifier: Apache-2.0

// ichor-apiserver is the aggregated API server of the group ichor.maesh.dev.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"maesh.dev/ichor/cmd/ichor-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand(genericapiserver.SetupSignalContext())))
}
