// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// ichor runs the command line tool as the stack's operator; what it prints goes to a file.
func (b *bench) ichor(ctx context.Context, log string, args ...string) error {
	path := filepath.Join(b.stack.Dir().Logs(), log)
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("log of ichor: %w", err)
	}
	command := exec.CommandContext(ctx, b.stack.Program("ichor"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+b.stack.Dir().KubeconfigOf("operator"))
	command.Stdout, command.Stderr = out, out
	if err := errors.Join(command.Run(), out.Close()); err != nil {
		return fmt.Errorf("ichor %v: %w; see %s", args, err, path)
	}
	return nil
}

// profileTime is how long a CPU profile is.
const profileTime = 20 * time.Second

// profileFor does something, and keeps profiles of the controller meanwhile if they are wanted.
func (b *bench) profileFor(ctx context.Context, phase string, do func() error) error {
	if !b.profile {
		return do()
	}
	if err := os.MkdirAll(b.results, 0o755); err != nil {
		return fmt.Errorf("folder for profiles: %w", err)
	}
	var group errgroup.Group
	group.Go(func() error {
		return b.keepProfile(ctx, phase+".cpu", fmt.Sprintf("profile?seconds=%d", int(profileTime.Seconds())))
	})
	faults := []error{do(), group.Wait(), b.keepProfile(ctx, phase+".heap", "heap"), b.keepProfile(ctx, phase+".goroutine", "goroutine")}
	return errors.Join(faults...)
}

func (b *bench) keepProfile(ctx context.Context, name, what string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*profileTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.stack.ControllerHealth(0)+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return fmt.Errorf("profile %s: %w", name, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("profile %s: %w", name, err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profile %s: the controller answers %s", name, response.Status)
	}
	file, err := os.Create(filepath.Join(b.results, b.chapter()+"."+name+".pprof"))
	if err != nil {
		return fmt.Errorf("profile %s: %w", name, err)
	}
	_, err = io.Copy(file, response.Body)
	return errors.Join(err, file.Close())
}
