// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/profile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	noNetwork = "the recorded node could not reach a time server; a hollow one answers with its own clock"
	metal     = "the recorded node was a container, a hollow one is a metal machine"
	etcdDown  = "etcd was down: who gives up first decides the text (code compared)"
	onlyOne   = "etcd here has one version, so a downgrade is refused instead of waited for"
)

// maintenanceDifferences are where a hollow node in maintenance answers otherwise, and why.
var maintenanceDifferences = map[string]difference{
	"/time.TimeService/Time": {reason: noNetwork, want: "OK"},
}

// configuredDifferences are the same for a configured control plane and os:admin.
var configuredDifferences = map[string]difference{
	"/time.TimeService/Time":                        {reason: noNetwork, want: "OK"},
	"/machine.MachineService/MetaWrite":             {reason: metal, want: "OK"},
	"/machine.MachineService/MetaDelete":            {reason: metal, want: "OK"},
	"/machine.MachineService/EtcdMemberList":        {reason: etcdDown, want: "DeadlineExceeded: context deadline exceeded"},
	"/machine.MachineService/EtcdForfeitLeadership": {reason: etcdDown, want: "DeadlineExceeded: context deadline exceeded"},
	"/machine.MachineService/EtcdSnapshot":          {reason: etcdDown, want: "DeadlineExceeded: context deadline exceeded"},
	"/machine.MachineService/EtcdDowngradeCancel":   {reason: onlyOne, want: "FailedPrecondition: failed to query etcd status: etcdserver: invalid downgrade target version"},
}

// difference is a reasoned exception: what the hollow node answers instead.
type difference struct{ reason, want string }

const skipped = "SKIPPED"

// unsettled is a control plane that was never bootstrapped, as the recorded one was when it was asked.
func unsettled(t *testing.T) (*hollowtest.Cluster, *node.Node) {
	t.Helper()
	return unsettledOf(t, profile.DefaultVersion, constants.DefaultKubernetesVersion)
}

// unsettledOf is unsettled with a version of Talos and one of Kubernetes that it runs.
func unsettledOf(t *testing.T, talosVersion, kubernetesVersion string) (*hollowtest.Cluster, *node.Node) {
	t.Helper()
	rack := hollowtest.NewRack(t)
	rack.Workload = hollowtest.FakeWorkload{}
	m := rack.Machine()
	m.Hostname, m.TalosVersion = "n1", talosVersion
	n := rack.Start(m)
	first := hollowtest.Wait(t, n, node.InMaintenance)
	c := hollowtest.NewClusterOf(t, m.Addr(), m.Disks[0].Device, talosVersion, kubernetesVersion)
	_, err := hollowtest.Insecure(t, n).ApplyConfiguration(t.Context(), &machine.ApplyConfigurationRequest{Data: c.Config(machinetype.TypeControlPlane)})
	if err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool {
		return s.BootID != first.BootID && s.Listening && slices.Contains(s.Unmet, "services: etcd not running")
	})
	return c, n
}

func maintenance(t *testing.T) *node.Node {
	t.Helper()
	return maintenanceOf(t, profile.DefaultVersion)
}

func maintenanceOf(t *testing.T, talosVersion string) *node.Node {
	t.Helper()
	rack := hollowtest.NewRack(t)
	m := rack.Machine()
	m.Hostname, m.TalosVersion = "n1", talosVersion
	n := rack.Start(m)
	hollowtest.Wait(t, n, node.InMaintenance)
	return n
}

func connect(t *testing.T, n *node.Node, cfg *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := dial(n.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// anonymous is a client without a certificate, to whom it does not matter whom it talks to.
var anonymous = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}

// compare asks every method that is in the recording's column and not skipped there.
func compare(t *testing.T, conn *grpc.ClientConn, column int, differences map[string]difference) {
	t.Helper()
	rows, err := table("rpc.md", 4)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]string{}
	for _, row := range rows {
		recorded["/"+row[0]] = row[column]
	}
	for _, m := range methods() {
		want, ok := recorded[path(m)]
		if !ok {
			t.Errorf("%s: not in the recording", path(m))
			continue
		}
		d, listed := differences[path(m)]
		if want == skipped && !listed {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*hollowtest.Patience)
		got := call(ctx, conn, m)
		cancel()
		if listed {
			if got == want {
				t.Errorf("%s: a difference is listed (%s), but the answer is the recorded one", path(m), d.reason)
			}
			want = d.want
		}
		if strings.TrimRight(got, " ") != strings.TrimRight(want, " ") {
			t.Errorf("%s:\n got %s\nwant %s", path(m), got, want)
		}
	}
}

func TestEveryMethodInMaintenanceAnswersAsARealNode(t *testing.T) {
	t.Parallel()
	compare(t, connect(t, maintenance(t), anonymous), 1, maintenanceDifferences)
}

func TestEveryMethodOfAConfiguredNodeAnswersAsARealNode(t *testing.T) {
	t.Parallel()
	c, n := unsettled(t)
	compare(t, connect(t, n, c.TLS(role.Admin)), 3, configuredDifferences)
}

// effects are methods that do something even with an empty request: they are called only by whom they refuse. That the
// others may call them is a test of package access, against the same table.
var effects = []string{
	"/machine.MachineService/Bootstrap", "/machine.MachineService/Reboot", "/machine.MachineService/Shutdown", "/machine.MachineService/Reset",
	"/machine.MachineService/Rollback", "/machine.MachineService/EtcdLeaveCluster",
}

func TestEveryRoleMayCallWhatItsTableSays(t *testing.T) {
	t.Parallel()
	lines, err := roleTable()
	if err != nil {
		t.Fatal(err)
	}
	c, n := unsettled(t)
	for _, r := range []role.Role{role.Reader, role.Operator, role.Admin, role.EtcdBackup, role.MetaWriter, role.ImageVerifier, "none"} {
		t.Run(strings.ReplaceAll(string(r), ":", "-"), func(t *testing.T) {
			roles := []role.Role{r}
			if r == "none" {
				roles = nil
			}
			conn := connect(t, n, c.TLS(roles...))
			for _, m := range methods() {
				if m.Parent().FullName() == "securityapi.SecurityService" {
					continue
				}
				line, listed := lines[path(m)]
				allowed := r == role.Admin || (listed && !line.maintenanceOnly && slices.Contains(line.roles, string(r)))
				if allowed && slices.Contains(effects, path(m)) {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*hollowtest.Patience)
				got := call(ctx, conn, m)
				cancel()
				if denied := got == "PermissionDenied: not authorized"; denied == allowed {
					t.Errorf("%s with %s: %s", path(m), r, got)
				}
			}
		})
	}
}
