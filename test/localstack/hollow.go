// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"

	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack/state"
)

// hollowArgs are the arguments of the program that hosts the machines.
func hollowArgs(dir state.Dir, binaries string) []string {
	return []string{"run", "--fleet", dir.Fleet(), "--state", dir.Machines(), "--control", controlSocket(dir), "--bin", binaries}
}

// controlSocket is where the machines are told to misbehave.
func controlSocket(dir state.Dir) string { return filepath.Join(dir.Run(), "hollow.sock") }

// auditLogs is the pattern of the audit logs of the kube-apiservers.
func auditLogs(dir state.Dir) string {
	return filepath.Join(dir.Machines(), "*", "logs", "audit.log")
}

// Machines asks and tells the hollow machines what no protocol of Talos would: what their console shows, and to
// misbehave.
type Machines struct{ client *http.Client }

func newMachines(dir state.Dir) *Machines {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", controlSocket(dir))
	}
	return &Machines{&http.Client{Timeout: healthTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Console is what stands on a machine's console, and what an observer of its network saw.
func (m *Machines) Console(ctx context.Context, name string) (node.Status, error) {
	var status node.Status
	return status, m.call(ctx, http.MethodGet, "/status/"+name, &status)
}

// Applies is a machine's own log of the configurations it was sent.
func (m *Machines) Applies(ctx context.Context, name string) ([]node.Apply, error) {
	var applies []node.Apply
	return applies, m.call(ctx, http.MethodGet, "/applies/"+name, &applies)
}

// NewCertificate has a machine present another certificate from now on.
func (m *Machines) NewCertificate(ctx context.Context, name string) error {
	return m.call(ctx, http.MethodPost, "/certificate/"+name, nil)
}

func (m *Machines) call(ctx context.Context, method, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://hollow"+path, nil)
	if err != nil {
		return err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return fmt.Errorf("control of the machines: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	data, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("control of the machines: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("control of the machines: %s %s: %s: %s", method, path, response.Status, data)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// awaitConsole waits until the first machine's API listens and returns the fingerprint that its console shows.
func (s *Stack) awaitConsole(ctx context.Context) (talos.Fingerprint, error) {
	var fingerprint talos.Fingerprint
	err := s.hollow.wait(ctx, func(ctx context.Context) error {
		console, err := s.machines.Console(ctx, s.first.Name)
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
