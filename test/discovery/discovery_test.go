// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"context"
	"io"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/controllers/discovery"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/apiserver/harness"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/hollow/odd"
)

func TestMain(m *testing.M) {
	code := m.Run()
	harness.Close()
	os.Exit(code)
}

const bound = 2 * time.Minute

// counting counts the probes of a real prober.
type counting struct {
	talos.Prober
	probes atomic.Int64
}

func (c *counting) Probe(ctx context.Context, address netip.Addr) talos.Probe {
	defer c.probes.Add(1)
	return c.Prober.Probe(ctx, address)
}

// ours are the credentials of a cluster.
type ours struct{ cluster *hollowtest.Cluster }

func (o ours) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	certificate, err := o.cluster.Bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), time.Hour)
	if err != nil {
		return talos.Credentials{}, err
	}
	return talos.Credentials{CA: o.cluster.Bundle.Certs.OS.Crt, Certificate: certificate.Crt, Key: certificate.Key}, nil
}

// world is a rack, an API server with a cluster that looks at the rack, and the search for machines.
type world struct {
	*testing.T
	rack   *hollowtest.Rack
	person *versioned.Clientset
	prober *counting
	clock  *clocktesting.FakeClock
	stop   func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	env := harness.Start(t)
	w := &world{
		T: t, rack: hollowtest.NewRack(t), person: env.Client(t, 0, harness.Approver),
		prober: &counting{Prober: talos.NewProber(talos.ProbeOptions{HandshakeTimeout: time.Second})}, clock: clocktesting.NewFakeClock(time.Now()),
	}
	_, err := env.Client(t, 0, harness.Admin).IchorV1alpha1().TalosClusters().Create(t.Context(), &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod"},
		Spec: v1alpha1.TalosClusterSpec{
			SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
			ControlPlane: v1alpha1.ControlPlane{Count: 1, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}},
			Discovery:    v1alpha1.Discovery{Subnets: []v1alpha1.DiscoverySubnet{{CIDR: w.rack.Prefix().String()}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.start(env.Client(t, 0, harness.Controller))
	return w
}

// start runs the controller with the rights it has in a cluster.
func (w *world) start(client versioned.Interface) {
	w.Helper()
	factory := externalversions.NewSharedInformerFactory(client, 0)
	controller, err := discovery.New(discovery.Config{
		Client: client, Machines: factory.Ichor().V1alpha1().TalosMachines(), Clusters: factory.Ichor().V1alpha1().TalosClusters(),
		Dialer: talos.NewDialer(talos.DialOptions{}), Prober: w.prober, Credentials: ours{hollowtest.NewCluster(w, w.rack.Addr(), "/dev/sda")},
		Recorder: &record.FakeRecorder{}, Clock: w.clock, Options: discovery.Options{
			Rate: rate.Inf, ProgressInterval: 1000 * time.Hour, // the clock jumps while a scan runs, which doesn't make it a long one
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run: %v", err)
		}
		factory.Shutdown()
	}
	w.Cleanup(func() { w.stop() })
	go func() { ended <- controller.Run(ctx, 1) }()
}

func (w *world) eventually(what string, condition func() bool) {
	w.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, bound, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		w.Fatalf("%s: not within %s; discovery is %+v", what, bound, w.cluster().Status.Discovery)
	}
}

func (w *world) cluster() *v1alpha1.TalosCluster {
	w.Helper()
	cluster, err := w.person.IchorV1alpha1().TalosClusters().Get(context.Background(), "prod", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return cluster
}

func (w *world) machines() map[string]v1alpha1.TalosMachine {
	w.Helper()
	list, err := w.person.IchorV1alpha1().TalosMachines().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]v1alpha1.TalosMachine{}
	for _, m := range list.Items {
		out[m.Name] = m
	}
	return out
}

func (w *world) versions() map[string]string {
	out := map[string]string{"cluster": w.cluster().ResourceVersion}
	for name, m := range w.machines() {
		out[name] = m.ResourceVersion
	}
	return out
}

// scan asks for a scan and waits until it is done.
func (w *world) scan(request string) {
	w.Helper()
	cluster := w.cluster()
	cluster.Spec.Discovery.ScanRequest = request
	if _, err := w.person.IchorV1alpha1().TalosClusters().Update(w.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.eventually("scan "+request, func() bool { return w.cluster().Status.Discovery.ScanRequest == request })
}

// rescan lets the interval pass and waits until the scan after it has begun another one, so has ended.
func (w *world) rescan() {
	w.Helper()
	total := int64(w.cluster().Status.Discovery.Total)
	for range 2 {
		before := w.prober.probes.Load()
		w.eventually("the next scan begins", func() bool {
			w.clock.Step(v1alpha1.DefaultDiscoveryInterval)
			return w.prober.probes.Load() > before
		})
		w.eventually("every address is looked at", func() bool { return w.prober.probes.Load() >= before+total })
	}
}

// hold keeps a server that isn't Talos at the next address of the rack.
func (w *world) hold(open func(netip.AddrPort) (io.Closer, error)) string {
	w.Helper()
	address := w.rack.Addr()
	server, err := open(netip.AddrPortFrom(address, talos.Port))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = server.Close() })
	return address.String()
}

func TestASubnetWithMachinesAndOthers(t *testing.T) {
	w := newWorld(t)
	machines := map[string]*node.Node{}
	entries := map[string]fleet.Machine{}
	for range 10 {
		m := w.rack.Machine()
		machines[m.UUID], entries[m.UUID] = w.rack.Start(m), m
	}
	foreign := w.rack.Machine()
	foreign.State = fleet.StateForeign
	theirs := w.rack.Start(foreign)
	hosts := map[string]string{
		theirs.Address().String(): "AlreadyConfigured: a configured Talos machine",
		w.hold(odd.SSH):           "NotTalos: an SSH server",
		w.hold(odd.HTTP):          "NotTalos: an HTTP server without TLS",
		w.hold(odd.Silent):        "NotTalos: a server that doesn't finish the TLS handshake",
		w.hold(odd.HalfTLS):       "NotTalos: a server that doesn't finish the TLS handshake",
		w.hold(odd.Flood):         "NotTalos: a server that doesn't speak TLS",
		w.hold(odd.TLSWithoutH2):  "NotTalos: TLS without HTTP/2",
		w.hold(odd.GRPC):          "NotTalos: a gRPC server that isn't Talos",
	}
	// The rack's own claim on its network listens there, and never accepts.
	last := w.rack.Prefix().Addr().As4()
	last[3] = 254
	hosts[netip.AddrFrom4(last).String()] = "NotTalos: a server that doesn't finish the TLS handshake"
	for _, n := range machines {
		hollowtest.Wait(t, n, node.InMaintenance)
	}
	hollowtest.Wait(t, theirs, func(s node.Status) bool { return s.Listening })

	w.scan("first")
	status := w.cluster().Status
	got := map[string]string{}
	for _, host := range status.Discovery.Hosts {
		got[host.Address] = string(host.Class) + ": " + host.Message
	}
	if diff := cmp.Diff(hosts, got); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	counts := status.Discovery
	if counts.Total != 254 || counts.Done != 254 || counts.Maintenance != 10 || counts.AlreadyConfigured != 1 || counts.NotTalos != 8 || counts.Unreachable != 235 {
		t.Errorf("counts %+v", counts)
	}
	w.compare(machines, entries)

	before := w.versions()
	w.rescan()
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Errorf("scanning again wrote something (-before +after):\n%s", diff)
	}
	w.ends()
}

// compare holds the objects against the machines.
func (w *world) compare(machines map[string]*node.Node, entries map[string]fleet.Machine) {
	w.Helper()
	objects := w.machines()
	if len(objects) != len(machines) {
		w.Errorf("%d objects for %d machines", len(objects), len(machines))
	}
	for uuid, n := range machines {
		m, found := objects[strings.ToLower(uuid)]
		if !found {
			w.Errorf("no object for machine %s", uuid)
			continue
		}
		if !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionIdentityResolved) || !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable) {
			w.Errorf("conditions of %s: %+v", uuid, m.Status.Conditions)
		}
		status := n.Status()
		if m.Status.MaintenanceFingerprint != status.Fingerprint || m.Status.Addresses[0] != n.Address().String() || m.Status.Stage != v1alpha1.StageMaintenance ||
			m.Spec.Identity.SerialNumber != entries[uuid].SerialNumber || m.Spec.ApprovalState != v1alpha1.ApprovalPending {
			w.Errorf("object of %s: %+v %+v", uuid, m.Spec, m.Status)
		}
		if len(m.Status.Inventory.Disks) != len(entries[uuid].Disks) || !slices.Contains(m.Finalizers, v1alpha1.MachineFinalizer) {
			w.Errorf("object of %s: finalizers %v, disks %+v", uuid, m.Finalizers, m.Status.Inventory.Disks)
		}
	}
}

// ends stops the controller and demands that nothing of it is left.
func (w *world) ends() {
	w.Helper()
	w.stop()
	w.stop = func() {}
	w.eventually("every goroutine of the search for machines ends", func() bool {
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "ichor/controllers/discovery.(") && !strings.Contains(string(stacks), "ichor/pkg/talos.")
	})
}

func TestWhatHappensToMachinesOverTime(t *testing.T) {
	w := newWorld(t)
	entry := w.rack.Machine()
	n := w.rack.Start(entry)
	hollowtest.Wait(t, n, node.InMaintenance)
	name := strings.ToLower(entry.UUID)
	w.scan("found")
	first := w.machines()[name]

	n.NewCertificate()
	hollowtest.Wait(t, n, func(s node.Status) bool { return s.Fingerprint != first.Status.MaintenanceFingerprint })
	w.scan("another certificate")
	m := w.machines()[name]
	if m.Status.MaintenanceFingerprint != n.Status().Fingerprint || len(m.Status.FingerprintHistory) != 2 {
		t.Errorf("fingerprint %s, history %v", m.Status.MaintenanceFingerprint, m.Status.FingerprintHistory)
	}

	moved := w.rack.Addr()
	if err := n.ChangeAddress(netip.PrefixFrom(moved, 24)); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, func(s node.Status) bool { return node.InMaintenance(s) && s.Address == moved })
	w.scan("another address")
	if m = w.machines()[name]; m.UID != first.UID || m.Status.Addresses[0] != moved.String() || len(w.machines()) != 1 {
		t.Errorf("addresses %v of %d machines", m.Status.Addresses, len(w.machines()))
	}

	if err := n.SwapNIC(entry.Links[0].Name, "02:00:5e:99:00:01"); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.InMaintenance)
	twin := w.rack.Machine()
	twin.UUID = entry.UUID
	other := w.rack.Start(twin)
	hollowtest.Wait(t, other, node.InMaintenance)
	w.scan("a board with its UUID")
	doubtful := 0
	for _, m := range w.machines() {
		condition := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionIdentityResolved)
		if condition.Status == metav1.ConditionFalse {
			doubtful++
			if condition.Reason != v1alpha1.ReasonUUIDHeldByOther || !strings.Contains(condition.Message, name) {
				t.Errorf("%s: %s, %s", m.Name, condition.Reason, condition.Message)
			}
		}
	}
	if want := len(w.machines()) - 1; doubtful != want || want == 0 {
		t.Errorf("%d of %d machines are doubted, want all but the first", doubtful, len(w.machines()))
	}

	if err := n.PowerOff(); err != nil {
		t.Fatal(err)
	}
	hollowtest.Wait(t, n, node.IsOff)
	w.scan("switched off")
	if m = w.machines()[name]; !meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable) {
		t.Errorf("conditions %+v", m.Status.Conditions)
	}
}
