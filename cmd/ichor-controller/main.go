// SPDX-License-Identifier: Apache-2.0

// Command ichor-controller takes approved machines to Ready and searches for new ones.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"maesh.dev/ichor/cmd/ichor-controller/app"
)

// memoryLimit is where the garbage collector begins to work harder, in bytes: with a thousand machines there are a hundred
// megabytes of connections that stay, and without it as much garbage would be let lie beside them. GOMEMLIMIT sets another.
const memoryLimit = 256 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ichor-controller:", err)
		os.Exit(1)
	}
}
