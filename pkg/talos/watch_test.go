// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"

	"maesh.dev/ichor/pkg/talos"
)

// futureSpec is a configuration that this version of the machinery can't decode; over the wire it is a YAML string, as
// Talos sends every configuration.
type futureSpec struct{ text string }

func (s futureSpec) MarshalYAML() (any, error) { return s.text, nil }

func (s futureSpec) DeepCopy() futureSpec { return s }

func (s futureSpec) MarshalProto() ([]byte, error) { return nil, nil }

type futureExtension struct{}

func (futureExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{Type: configres.MachineConfigType, DefaultNamespace: configres.NamespaceName}
}

var _ protobuf.ProtoMarshaler = futureSpec{}

func future(text string) resource.Resource {
	return typed.NewResource[futureSpec, futureExtension](
		resource.NewMetadata(configres.NamespaceName, configres.MachineConfigType, configres.ActiveID, resource.VersionUndefined), futureSpec{text})
}

func running(t *testing.T, text string) *configres.MachineConfig {
	t.Helper()
	provider, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return configres.NewMachineConfig(provider)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// watch begins a watch in the background.
func watch(t *testing.T, node talos.ConfiguredNode) (seen chan string, stop context.CancelFunc, ended chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	seen, ended = make(chan string, 16), make(chan error, 1)
	go func() { ended <- node.WatchConfiguration(ctx, func(hash string) { seen <- hash }) }()
	t.Cleanup(stop)
	return seen, stop, ended
}

func await[T any](t *testing.T, what string, from chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

const first, second = "version: v1alpha1\nmachine:\n    type: worker\n", "version: v1alpha1\nmachine:\n    type: worker\n    sysctls:\n        a: \"1\"\n"

func TestAWatchReportsWhatRunsAndEachChange(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	node.put(t, running(t, first))
	seen, stop, ended := watch(t, node.dialConfigured(t, credentials))
	if got := await(t, "configuration", seen); got != hash(first) {
		t.Errorf("what runs has the hash %s, want that of the exact bytes", got)
	}
	changed := running(t, second)
	old, err := node.state.Get(t.Context(), changed.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	changed.Metadata().SetVersion(old.Metadata().Version())
	if err := node.state.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "change", seen); got != hash(second) {
		t.Errorf("the change has the hash %s", got)
	}
	stop()
	if err := await(t, "end", ended); !talos.IsLost(err) {
		t.Errorf("it ended with %v", err)
	}
}

func TestAWatchOfAConfigurationThatIsYetToCome(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	seen, _, _ := watch(t, node.dialConfigured(t, credentials))
	node.put(t, future(newerConfig))
	if got := await(t, "configuration of a newer Talos", seen); got != hash(newerConfig) {
		t.Errorf("it has the hash %s", got)
	}
}

func TestAWatchEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	node.put(t, running(t, first))
	connection := node.dialConfigured(t, credentials)
	seen, _, ended := watch(t, connection)
	await(t, "configuration", seen)
	if err := connection.Close(); err != nil {
		t.Fatal(err)
	}
	var call *talos.CallError
	if err := await(t, "end", ended); !errors.As(err, &call) {
		t.Errorf("it ended with %v", err)
	}
}
