// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"context"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
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

// limits are those of a probe, in all tests: enough for a computer that does much else.
var limits = talos.ProbeOptions{
	ConnectTimeout: 5 * time.Second, HandshakeTimeout: 5 * time.Second, FirstByteTimeout: 4 * time.Second, ConfirmTimeout: 6 * time.Second,
}

// probed is what a prober did at an address.
type probed struct {
	times   int
	longest time.Duration
	last    talos.Probe
}

// watched notes what a real prober does.
type watched struct {
	talos.Prober
	mu   sync.Mutex
	seen map[netip.Addr]probed
}

func watch() *watched {
	return &watched{Prober: talos.NewProber(limits), seen: map[netip.Addr]probed{}}
}

// Probe implements talos.Prober.
func (w *watched) Probe(ctx context.Context, address netip.Addr) talos.Probe {
	begin := time.Now()
	probe := w.Prober.Probe(ctx, address)
	took := time.Since(begin)
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.seen[address]
	w.seen[address] = probed{before.times + 1, max(before.longest, took), probe}
	return probe
}

func (w *watched) snapshot() map[netip.Addr]probed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.seen)
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
	env    *harness.Env
	rack   *hollowtest.Rack
	person *versioned.Clientset
	prober *watched
	clock  *clocktesting.FakeClock
	stop   func()
	// readTimeout bounds the reading of one machine; the controller's default if 0.
	readTimeout time.Duration
	// beacon is an ssh server that each scan visits once.
	beacon netip.Addr
	visits atomic.Int64
}

// newWorld makes a world whose rack is a network with a prefix of this length; the search begins with search.
func newWorld(t *testing.T, bits int) *world {
	t.Helper()
	env := harness.Start(t)
	w := &world{
		T: t, env: env, rack: hollowtest.NewRackOf(t, bits), person: env.Client(t, 0, harness.Approver),
		prober: watch(), clock: clocktesting.NewFakeClock(time.Now()), stop: func() {},
	}
	_, err := env.Client(t, 0, harness.Admin).IchorV1alpha1().TalosClusters().Create(t.Context(), &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod"},
		Spec: v1alpha1.TalosClusterSpec{
			TalosVersion: "v1.13.9",
			SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
			ControlPlane: v1alpha1.ControlPlane{Count: 1, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}},
			Discovery:    v1alpha1.Discovery{Subnets: []v1alpha1.DiscoverySubnet{{CIDR: w.rack.Prefix().String()}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.beacon, _ = w.open(odd.Beacon(&w.visits))
	return w
}

// search starts the controller with the rights it has in a cluster, and waits until its first scan is done.
func (w *world) search() {
	w.Helper()
	cluster := w.cluster()
	cluster.Spec.Discovery.ScanRequest = "begin"
	if _, err := w.person.IchorV1alpha1().TalosClusters().Update(w.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	client := w.env.Client(w, 0, harness.Controller)
	factory := externalversions.NewSharedInformerFactory(client, 0)
	controller, err := discovery.New(discovery.Config{
		Client: client, Machines: factory.Ichor().V1alpha1().TalosMachines(), Clusters: factory.Ichor().V1alpha1().TalosClusters(),
		Dialer: talos.NewDialer(talos.DialOptions{}), Prober: w.prober, Credentials: ours{hollowtest.NewCluster(w, w.rack.Addr(), "/dev/sda")},
		Recorder: &record.FakeRecorder{}, Clock: w.clock, Options: discovery.Options{
			Rate: rate.Inf, ReadTimeout: w.readTimeout,
			ProgressInterval: 1000 * time.Hour, // the clock jumps while a scan runs, which doesn't make it a long one
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run: %v", err)
		}
		factory.Shutdown()
	})
	w.Cleanup(w.stop)
	go func() { ended <- controller.Run(ctx, 1) }()
	w.eventually("the first scan", func() bool { return w.cluster().Status.Discovery.ScanRequest == "begin" })
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

// machineAt finds the machine that is dialled at an address.
func (w *world) machineAt(address netip.Addr) v1alpha1.TalosMachine {
	w.Helper()
	for _, m := range w.machines() {
		if len(m.Status.Addresses) > 0 && m.Status.Addresses[0] == address.String() {
			return m
		}
	}
	w.Fatalf("no machine has the address %s", address)
	return v1alpha1.TalosMachine{}
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

// rescan lets the interval pass until the beacon had two visits: a whole scan has begun and ended since.
func (w *world) rescan() {
	w.Helper()
	before := w.visits.Load()
	w.eventually("two more scans begin", func() bool {
		w.clock.Step(v1alpha1.DefaultDiscoveryInterval)
		return w.visits.Load() >= before+2
	})
}

// unchanged scans again and demands that nothing was written.
func (w *world) unchanged() {
	w.Helper()
	cluster, machines := w.cluster(), w.machines()
	w.rescan()
	if diff := cmp.Diff(cluster, w.cluster()); diff != "" {
		w.Errorf("scanning again wrote the cluster (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(machines, w.machines()); diff != "" {
		w.Errorf("scanning again wrote machines (-before +after):\n%s", diff)
	}
}

// open opens a server that isn't Talos at the next address of the rack.
func (w *world) open(server func(netip.AddrPort) (io.Closer, error)) (netip.Addr, io.Closer) {
	w.Helper()
	address := w.rack.Addr()
	opened, err := server(netip.AddrPortFrom(address, talos.Port))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = opened.Close() })
	return address, opened
}

// resolution is status and reason of the condition IdentityResolved.
func resolution(m v1alpha1.TalosMachine) string {
	condition := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionIdentityResolved)
	if condition == nil {
		return "none"
	}
	return string(condition.Status) + " " + condition.Reason
}

// compare holds the object of a machine against the machine.
func (w *world) compare(objects map[string]v1alpha1.TalosMachine, entry fleet.Machine, n *node.Node) {
	w.Helper()
	m, found := objects[strings.ToLower(entry.UUID)]
	if !found {
		w.Errorf("no object for machine %s", entry.UUID)
		return
	}
	if resolution(m) != "True StrongIdentity" || !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable) {
		w.Errorf("conditions of %s: %+v", entry.UUID, m.Status.Conditions)
	}
	status := n.Status()
	if m.Status.MaintenanceFingerprint != status.Fingerprint || m.Status.Addresses[0] != n.Address().String() || m.Status.Stage != v1alpha1.StageMaintenance ||
		m.Spec.Identity.SerialNumber != entry.SerialNumber || m.Spec.ApprovalState != v1alpha1.ApprovalPending {
		w.Errorf("object of %s: %+v %+v", entry.UUID, m.Spec, m.Status)
	}
	if len(m.Status.Inventory.Disks) != len(entry.Disks) || !slices.Contains(m.Finalizers, v1alpha1.MachineFinalizer) {
		w.Errorf("object of %s: finalizers %v, disks %+v", entry.UUID, m.Finalizers, m.Status.Inventory.Disks)
	}
}
