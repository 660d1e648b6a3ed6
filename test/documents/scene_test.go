// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/documents"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is of a version whose service account key is quick to make; nothing else about it differs.
var bundle = sync.OnceValues(func() (*secretsbundle.Bundle, error) {
	return secretsbundle.Generate(talosconfig.TalosVersion1_6, time.Now())
})

// cluster of an endpoint.
func cluster(endpoint string) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	c.Spec.ControlPlane = v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: endpoint}}
	v1alpha1.SetDefaults_TalosClusterSpec(&c.Spec)
	c.Spec.KubernetesVersion = "v1.36.6"
	return c
}

// rendered is what one machine is to have.
type rendered struct {
	in machineconfig.Inputs
}

// of is the machine of a role with the disk of a hollow one.
func of(t *testing.T, c *v1alpha1.TalosCluster, role v1alpha1.MachineRole, m fleet.Machine) *rendered {
	t.Helper()
	keys, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "4c4c4544-0051-3610-8052-b4c04f4c3132"}}
	object.Spec.ClusterRef.Name, object.Spec.Role, object.Spec.Hostname = c.Name, role, "m-"+string(role)
	object.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: m.Disks[0].Serial}, Role: v1alpha1.DiskSystem}}
	v1alpha1.SetDefaults_TalosMachineSpec(&object.Spec)
	inventory := &v1alpha1.MachineInventory{}
	for _, disk := range m.Disks {
		inventory.Disks = append(inventory.Disks, v1alpha1.DiskInventory{Device: disk.Device, Serial: disk.Serial, WWID: disk.WWID, Transport: string(disk.Transport)})
	}
	object.Status.Inventory = inventory
	return &rendered{machineconfig.Inputs{
		Bundle: keys.Talos(), Cluster: c, Machine: object,
		Facts: machineconfig.Facts{MaintenanceVersion: m.TalosVersion, Inventory: inventory, Versions: machineconfig.Settle(c, "")},
	}}
}

// secret looks a value of the examples up.
func secret(ref v1alpha1.SecretKeyReference) (string, error) {
	value, there := documents.Secrets()[ref.Key]
	if !there {
		return "", errors.New("there is no such value")
	}
	return value, nil
}

// with renders the machine with patches.
func (r *rendered) with(t *testing.T, patches ...*v1alpha1.TalosConfigPatch) (text []byte, masks machineconfig.Masks) {
	t.Helper()
	in := r.in
	for _, patch := range machineconfig.PatchesFor(in.Machine, patches) {
		made, err := machineconfig.Compile(patch, false, secret)
		if err != nil {
			t.Fatal(err)
		}
		in.Patches = append(in.Patches, made)
	}
	text, err := machineconfig.Render(in)
	if err != nil {
		t.Fatal(err)
	}
	return text, machineconfig.MasksOf(in.Patches)
}

// hollow is a hollow machine that runs what was rendered for it.
type hollow struct {
	*rendered
	version string
	machine *node.Node
	access  talos.Credentials
	node    talos.ConfiguredNode
}

// rack starts a hollow control plane and a hollow worker, of versions of Talos, each with its first configuration.
func rack(t *testing.T, version string, patches ...*v1alpha1.TalosConfigPatch) map[v1alpha1.MachineRole]*hollow {
	t.Helper()
	place := hollowtest.NewRack(t)
	place.Workload = hollowtest.FakeWorkload{}
	first := place.Machine()
	c := cluster(first.Addr().String())
	all := map[v1alpha1.MachineRole]*hollow{}
	for _, each := range []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		m := first
		if each == v1alpha1.RoleWorker {
			m = place.Machine()
		}
		m.TalosVersion = version
		c.Spec.TalosVersion = version
		h := &hollow{rendered: of(t, c, each, m), version: version}
		machine := place.Start(m)
		h.machine = machine
		status := hollowtest.Wait(t, machine, node.InMaintenance)
		text, _ := h.with(t, patches...)
		h.install(t, machine.Address(), talos.Fingerprint(status.Fingerprint), text)
		hollowtest.Wait(t, machine, func(s node.Status) bool { return s.Stage == "booting" || s.Stage == "running" })
		h.connect(t, machine.Address())
		all[each] = h
	}
	return all
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*hollowtest.Patience)
	t.Cleanup(cancel)
	return ctx
}

var dialer = talos.NewDialer(talos.DialOptions{})

func (h *hollow) install(t *testing.T, at netip.Addr, pin talos.Fingerprint, text []byte) {
	t.Helper()
	connection, err := dialer.DialMaintenance(patient(t), at, pin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := connection.ApplyConfiguration(patient(t), text, talos.ApplyAuto); err != nil {
		t.Fatal(err)
	}
}

// connect waits until the machine lets the cluster's administrator in after its installation.
func (h *hollow) connect(t *testing.T, at netip.Addr) {
	t.Helper()
	certificate, err := h.in.Bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h.access = talos.Credentials{CA: h.in.Bundle.Certs.OS.Crt, Certificate: certificate.Crt, Key: certificate.Key}
	ctx := patient(t)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		connection, err := dialer.DialConfigured(ctx, at, h.access)
		if err == nil {
			if facts, fault := connection.Facts(ctx); fault == nil && facts.SystemDisk != nil && (facts.Stage.Stage == v1alpha1.StageBooting || facts.Stage.Stage == v1alpha1.StageRunning) {
				h.node = connection
				t.Cleanup(func() { _ = connection.Close() })
				return
			}
			_ = connection.Close()
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the machine doesn't let its administrator in: %v", err)
		case <-ticker.C:
		}
	}
}

// apply sends a configuration that is to be taken at once.
func (h *hollow) apply(t *testing.T, text []byte) error {
	t.Helper()
	_, err := h.node.ApplyConfiguration(patient(t), text, talos.ApplyNoReboot)
	return err
}

// drift is in what the machine differs from what it should have.
func (h *hollow) drift(t *testing.T, want []byte, masks machineconfig.Masks) []machineconfig.Difference {
	t.Helper()
	have, err := h.node.RunningConfiguration(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(want, have) {
		return nil // as the controller does it
	}
	differences, err := machineconfig.Compare(want, have, masks)
	if err != nil {
		t.Fatal(err)
	}
	return differences
}
