// SPDX-License-Identifier: Apache-2.0

// Package configtest makes machine configurations for tests, the way talosctl gen config does.
package configtest

import (
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// KubernetesVersion is what the configurations ask for, without the v.
const KubernetesVersion = "1.36.1"

// Cluster makes configurations of one cluster.
type Cluster struct {
	input *generate.Input
}

// clock is fixed once, so that every CA of a test binary is valid from the start.
var clock = sync.OnceValue(func() secrets.Clock { return secrets.NewFixedClock(time.Now().Add(-time.Minute)) })

// New makes the secrets of a cluster whose API server is reached at endpoint (a URL).
func New(tb testing.TB, endpoint string) *Cluster {
	tb.Helper()

	bundle, err := secrets.NewBundle(clock(), config.TalosVersionCurrent)
	if err != nil {
		tb.Fatalf("make cluster secrets: %v", err)
	}

	input, err := generate.NewInput("hollow", endpoint, KubernetesVersion,
		generate.WithSecretsBundle(bundle), generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		tb.Fatalf("prepare configuration: %v", err)
	}

	return &Cluster{input: input}
}

// ControlPlane returns a control plane's configuration with strategic patches (YAML) applied.
func (c *Cluster) ControlPlane(tb testing.TB, patches ...string) config.Provider {
	tb.Helper()

	return c.machine(tb, machine.TypeControlPlane, patches)
}

// Worker returns a worker's configuration with strategic patches (YAML) applied.
func (c *Cluster) Worker(tb testing.TB, patches ...string) config.Provider {
	tb.Helper()

	return c.machine(tb, machine.TypeWorker, patches)
}

func (c *Cluster) machine(tb testing.TB, kind machine.Type, texts []string) config.Provider {
	tb.Helper()

	provider, err := c.input.Config(kind)
	if err != nil {
		tb.Fatalf("generate %s configuration: %v", kind, err)
	}

	patches := make([]configpatcher.Patch, 0, len(texts))

	for _, text := range texts {
		patch, loadErr := configpatcher.LoadPatch([]byte(text))
		if loadErr != nil {
			tb.Fatalf("load patch: %v\n%s", loadErr, text)
		}

		patches = append(patches, patch)
	}

	patched, err := configpatcher.Apply(configpatcher.WithConfig(provider), patches)
	if err != nil {
		tb.Fatalf("patch %s configuration: %v", kind, err)
	}

	result, err := patched.Config()
	if err != nil {
		tb.Fatalf("read patched %s configuration: %v", kind, err)
	}

	return result
}
