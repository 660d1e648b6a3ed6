// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"maesh.dev/ichor/test/crash/killer"
)

// What this test binary is when it is started by itself, and what it is told by its environment.
const (
	// asController is the name under which a stack starts the binary instead of the real ichor-controller.
	asController = "ichor-controller"
	// partEnv says which part of the product a process is; it is killed.
	partEnv       = "ICHOR_CRASH_PART"
	partBootstrap = "bootstrap"
	// folderEnv is the folder of what the processes tell each other.
	folderEnv = "ICHOR_CRASH_FOLDER"
	// swapEnv is set where it is killed on the way instead of when a write was answered, and the other way round.
	swapEnv = "ICHOR_CRASH_SWAP"
	// calmEnv is set where no write kills.
	calmEnv = "ICHOR_CRASH_CALM"
)

func TestMain(m *testing.M) {
	var part func(context.Context) error
	switch {
	case os.Getenv(partEnv) == asController:
		part = runController
	case os.Getenv(partEnv) == partBootstrap:
		part = runBootstrap
	case filepath.Base(os.Args[0]) == asController:
		part = supervise
	default:
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := part(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

// at is a file in the folder of what the processes tell each other.
func at(name string) string { return filepath.Join(os.Getenv(folderEnv), name) }

// journal is the file of what was killed at, for each part of the product.
func journal(part string) string { return at(part + ".kills") }

// operationFile is there while the controller is killed at what operations write, and at nothing else.
const operationFile = "operation"

func atOperations() bool {
	_, err := os.Stat(at(operationFile))
	return err == nil
}

// open makes the killer of a part, nil where nothing is to kill.
func open(part string) (*killer.Killer, error) {
	if atOperations() {
		return killer.Open(killer.Options{Journal: journal(part), Operations: true})
	}
	if os.Getenv(calmEnv) != "" {
		return nil, nil
	}
	return killer.Open(killer.Options{Journal: journal(part), Swap: os.Getenv(swapEnv) != "", Unsent: part == partBootstrap})
}

// soakEnv is set where operations are done while everything fails.
const soakEnv = "ICHOR_CRASH_SOAK"
