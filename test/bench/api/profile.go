// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// profileSeconds is how much of a part's beginning is profiled.
const profileSeconds = 15

// profiled runs a part with CPU profiles of the servers, if a folder is given for them.
func (w *world) profiled(ctx context.Context, folder, part string, run func() error) error {
	if folder == "" {
		return run()
	}
	servers, err := w.measured()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("folder of profiles: %w", err)
	}
	var group sync.WaitGroup
	for _, server := range servers {
		group.Go(func() {
			profile, err := server.collector.call(ctx, http.MethodGet, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds), nil)
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, part+"-"+server.name+".pprof"), profile, 0o600)
			}
			if err != nil {
				say("profile of %s during %s: %v", server.name, part, err)
			}
		})
	}
	defer group.Wait()
	return run()
}
