// SPDX-License-Identifier: Apache-2.0

// Command ichor-controller takes approved machines to Ready and searches for new ones.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"maesh.dev/ichor/cmd/ichor-controller/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ichor-controller:", err)
		os.Exit(1)
	}
}
