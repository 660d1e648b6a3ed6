// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.uber.org/goleak"

	"maesh.dev/ichor/test/hollow/fleet"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// insecure connects as a client without a certificate does.
func insecure(t *testing.T, n *node.Node) *client.Client {
	t.Helper()
	// The tests look at what maintenance serves; whose certificate it is does not matter here.
	c, err := client.New(t.Context(), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), client.WithEndpoints(n.Address().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hollowtest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestAMachineInMaintenanceShowsItsInventoryWithoutACertificate(t *testing.T) {
	t.Parallel()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	c := insecure(t, n)
	ctx := patient(t)
	system, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
	if err != nil {
		t.Fatal(err)
	}
	if got := system.TypedSpec().UUID; got != m.UUID {
		t.Errorf("UUID %q, want %q", got, m.UUID)
	}
	links, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	if err != nil {
		t.Fatal(err)
	}
	if links.Len() != len(m.Links)+1 {
		t.Errorf("%d links, want %d and lo", links.Len(), len(m.Links))
	}
	version, err := c.Version(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := version.GetMessages()[0].GetVersion().GetTag(); got != m.TalosVersion {
		t.Errorf("version %q, want %q", got, m.TalosVersion)
	}
}

// hour is longer than any test.
const hour = fleet.Duration(time.Hour)
