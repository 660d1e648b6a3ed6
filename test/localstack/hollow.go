// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/control"
	"maesh.dev/ichor/test/localstack/state"
)

// maxSocket is how long the path of a socket may be on Linux (108 bytes with the final zero), less what some tools add.
const maxSocket = 100

// hollowArgs are the arguments of the program that hosts the machines.
func hollowArgs(dir state.Dir, o Options) []string {
	return []string{
		"run", "--fleet", dir.Fleet(), "--state", dir.Machines(), "--control", controlSocket(dir), "--bin", o.BinDir,
		"--pods=" + strconv.FormatBool(!o.NoPods),
	}
}

// controlSocket is where the machines are told to misbehave: in the stack's folder, unless that has too long a name.
func controlSocket(dir state.Dir) string {
	path := filepath.Join(dir.Run(), "hollow.sock")
	if len(path) <= maxSocket {
		return path
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(os.TempDir(), "ichor-hollow-"+hex.EncodeToString(sum[:8])+".sock")
}

// auditLogs is the pattern of the audit logs of the kube-apiservers.
func auditLogs(dir state.Dir) string { return filepath.Join(dir.Machines(), "*", "logs", "audit.log") }

// awaitConsole waits until the first machine's API listens and returns the fingerprint that its console shows: what a
// person reads who stands before it.
func (s *Stack) awaitConsole(ctx context.Context) (talos.Fingerprint, error) {
	var fingerprint talos.Fingerprint
	err := s.hollow.wait(ctx, func(ctx context.Context) error {
		console, err := s.machines.Status(ctx, s.first.Name)
		if err != nil {
			return err
		}
		if !console.Listening || console.Fingerprint == "" {
			return fmt.Errorf("machine %s has the stage %q and doesn't listen", s.first.Name, console.Stage)
		}
		fingerprint = talos.Fingerprint(console.Fingerprint)
		return nil
	})
	return fingerprint, err
}

// Machines are the hollow machines, as somebody who stands before them has them in his hands.
func (s *Stack) Machines() *control.Client { return s.machines }
