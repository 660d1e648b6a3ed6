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

// garbage is how much garbage may lie beside what is used before it is collected, in percent. With a thousand machines
// there are a hundred megabytes of connections that stay; as much garbage again beside them would be too much. GOGC sets
// another.
const garbage = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ichor-controller:", err)
		os.Exit(1)
	}
}
