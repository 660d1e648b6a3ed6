// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/talos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bound = 20 * time.Second

// machine names used throughout.
const (
	uuidA = "4c4c4544-0051-3610-8052-b4c04f4c3132"
	uuidB = "4c4c4544-0051-3610-8052-b4c04f4c3133"
	junk  = "03000200-0400-0500-0006-000700080009"
)

// host is what is at an address of a test's network.
type host struct {
	class v1alpha1.HostClass
	words string
	// boot makes the certificate.
	boot  string
	facts talos.Facts
	// ours is true for a configured machine that lets the cluster in.
	ours bool
	// fail is what reading it ends with.
	fail error
}

// board is a machine in maintenance mode.
func board(uuid, serial string, macs ...string) *host {
	return &host{class: v1alpha1.HostMaintenance, boot: uuid + serial + fmt.Sprint(macs), facts: talos.Facts{
		Identity: v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: serial, MACAddresses: macs},
		Inventory: &v1alpha1.MachineInventory{
			Memory: resource.MustParse("32Gi"), Disks: []v1alpha1.DiskInventory{{Device: "/dev/sda", Size: resource.MustParse("1e12"), Serial: "D-" + serial}},
		},
		FirmwareRead: true, TalosVersion: "v1.13.9", Hostname: "talos-x", Stage: talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true},
	}}
}

func (h *host) fingerprint() talos.Fingerprint {
	sum := sha256.Sum256([]byte(h.boot))
	return talos.Fingerprint(base64.StdEncoding.EncodeToString(sum[:]))
}

// configured is the same machine with a configuration.
func (h *host) configured(ours bool) *host {
	next := *h
	next.class, next.words, next.ours = v1alpha1.HostAlreadyConfigured, "a configured Talos machine", ours
	return &next
}

// network is what answers where. It is Prober and Dialer at once.
type network struct {
	mu     sync.Mutex
	hosts  map[netip.Addr]*host
	probed map[netip.Addr]int
	gate   func(context.Context, netip.Addr)
	reads  atomic.Int64
}

func (n *network) put(address string, h *host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h == nil {
		delete(n.hosts, netip.MustParseAddr(address))
		return
	}
	n.hosts[netip.MustParseAddr(address)] = h
}

func (n *network) at(address netip.Addr) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts[address]
}

func (n *network) probes(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.probed[netip.MustParseAddr(address)]
}

func (n *network) Probe(ctx context.Context, address netip.Addr) talos.Probe {
	n.mu.Lock()
	n.probed[address]++
	gate := n.gate
	n.mu.Unlock()
	if gate != nil {
		gate(ctx, address)
	}
	h := n.at(address)
	if h == nil {
		return talos.Probe{Address: address, Class: v1alpha1.HostUnreachable, Message: "no answer"}
	}
	return talos.Probe{Address: address, Class: h.class, Fingerprint: h.fingerprint(), Message: h.words}
}

func (n *network) DialMaintenance(_ context.Context, address netip.Addr, pin talos.Fingerprint) (talos.MaintenanceNode, error) {
	h := n.at(address)
	switch {
	case pin != "":
		panic("the search for machines pins nothing")
	case h == nil || h.class != v1alpha1.HostMaintenance:
		return nil, errors.New("connection refused")
	}
	n.reads.Add(1)
	return connection{h: h, address: address}, nil
}

func (n *network) DialConfigured(_ context.Context, address netip.Addr, credentials talos.Credentials) (talos.ConfiguredNode, error) {
	h := n.at(address)
	if h == nil || !h.ours || string(credentials.CA) != "prod" {
		return nil, errors.New("certificate signed by unknown authority")
	}
	n.reads.Add(1)
	return connection{h: h, address: address}, nil
}

// connection reads a host. Whatever else is called is not for this controller, and panics.
type connection struct {
	talos.ConfiguredNode
	h       *host
	address netip.Addr
}

func (c connection) Close() error                   { return nil }
func (c connection) Fingerprint() talos.Fingerprint { return c.h.fingerprint() }

func (c connection) Facts(context.Context) (*talos.Facts, error) {
	if c.h.fail != nil {
		return nil, c.h.fail
	}
	facts := c.h.facts
	addresses := []string{c.address.String()}
	for _, other := range facts.Addresses {
		if other != c.address.String() {
			addresses = append(addresses, other)
		}
	}
	facts.Addresses = addresses
	return &facts, nil
}

type credentials struct{}

func (credentials) CredentialsFor(_ context.Context, cluster string) (talos.Credentials, error) {
	return talos.Credentials{CA: []byte(cluster)}, nil
}

// world is a cluster, its API, a network and the controller.
type world struct {
	*testing.T
	*network
	client   *fake.Clientset
	c        *Controller
	recorder *record.FakeRecorder
	version  atomic.Int64
	conflict atomic.Int64 // status writes that are to meet a conflict
}

// newWorld makes a cluster prod that looks at 10.0.0.0/24 and, one by one, 10.0.9.7.
func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{
		T: t, network: &network{hosts: map[netip.Addr]*host{}, probed: map[netip.Addr]int{}},
		client: fake.NewSimpleClientset(), recorder: record.NewFakeRecorder(1000),
	}
	w.serveAPI()
	cluster := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "cluster", Generation: 1, ResourceVersion: w.nextVersion()},
		Spec: v1alpha1.TalosClusterSpec{Discovery: v1alpha1.Discovery{
			Subnets: []v1alpha1.DiscoverySubnet{{CIDR: "10.0.0.0/24"}}, Addresses: []string{"10.0.9.7"}, Interval: metav1.Duration{Duration: time.Hour},
		}},
	}
	if err := w.client.Tracker().Add(cluster); err != nil {
		t.Fatal(err)
	}
	factory := externalversions.NewSharedInformerFactory(w.client, 0)
	config := Config{
		Client: w.client, Machines: factory.Ichor().V1alpha1().TalosMachines(), Clusters: factory.Ichor().V1alpha1().TalosClusters(),
		Dialer: w.network, Prober: w.network, Credentials: credentials{}, Recorder: w.recorder, Clock: clock.RealClock{},
		Options: Options{Rate: rate.Inf},
	}
	if change != nil {
		change(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	w.c = c
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		c.clusterQueue.ShutDown()
		c.machineQueue.ShutDown()
	})
	factory.WaitForCacheSync(ctx.Done())
	return w
}

func (w *world) nextVersion() string { return strconv.FormatInt(w.version.Add(1), 10) }

// serveAPI makes the fake client behave where it matters: versions move, old ones conflict, status is a subresource.
func (w *world) serveAPI() {
	w.client.PrependReactor("create", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		m := action.(clienttesting.CreateAction).GetObject().(*v1alpha1.TalosMachine).DeepCopy()
		m.UID, m.ResourceVersion, m.Generation = types.UID("uid-"+w.nextVersion()), w.nextVersion(), 1
		m.CreationTimestamp, m.Status = metav1.NewTime(time.Now().Truncate(time.Second)), v1alpha1.TalosMachineStatus{}
		return true, m, w.client.Tracker().Create(action.GetResource(), m, "")
	})
	w.client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("the controller writes %s %q", action.GetResource().Resource, action.GetSubresource())
		}
		object := action.(clienttesting.UpdateAction).GetObject()
		given, _ := meta.Accessor(object)
		stored, err := w.client.Tracker().Get(action.GetResource(), "", given.GetName())
		if err != nil {
			return true, nil, err
		}
		now, _ := meta.Accessor(stored)
		if now.GetResourceVersion() != given.GetResourceVersion() || w.conflict.Add(-1) >= 0 {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), given.GetName(), errors.New("moved on"))
		}
		next := stored.DeepCopyObject()
		switch next := next.(type) {
		case *v1alpha1.TalosMachine:
			next.Status = *object.(*v1alpha1.TalosMachine).Status.DeepCopy()
		case *v1alpha1.TalosCluster:
			next.Status = *object.(*v1alpha1.TalosCluster).Status.DeepCopy()
		}
		accessor, _ := meta.Accessor(next)
		accessor.SetResourceVersion(w.nextVersion())
		return true, next, w.client.Tracker().Update(action.GetResource(), next, "")
	})
}

// settle waits until the controller's caches show what the API holds.
func (w *world) settle() {
	w.Helper()
	w.eventually("the caches catch up", func() bool {
		cached, err := w.c.machines.List(labels.Everything())
		if err != nil {
			return false
		}
		stored := w.machines()
		if len(cached) != len(stored) {
			return false
		}
		for _, m := range cached {
			if other, found := stored[m.Name]; !found || other.ResourceVersion != m.ResourceVersion {
				return false
			}
		}
		cluster, err := w.c.clusters.Get("prod")
		return err == nil && cluster.ResourceVersion == w.cluster().ResourceVersion
	})
}

func (w *world) eventually(what string, condition func() bool) {
	w.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, bound, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		w.Fatalf("%s: not within %s", what, bound)
	}
}

// scan runs a whole scan now, and the judgement of every machine after it.
func (w *world) scan() {
	w.Helper()
	w.settle()
	w.c.forget("prod")
	if _, err := w.c.reconcileCluster(w.Context(), "prod"); err != nil {
		w.Fatalf("scan: %v", err)
	}
	w.judgeAll()
}

func (w *world) judgeAll() {
	w.Helper()
	for name := range w.machines() {
		w.settle()
		if err := w.c.reconcileMachine(w.Context(), name); err != nil {
			w.Fatalf("judge %s: %v", name, err)
		}
	}
	w.settle()
}

func (w *world) machines() map[string]*v1alpha1.TalosMachine {
	w.Helper()
	list, err := w.client.IchorV1alpha1().TalosMachines().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]*v1alpha1.TalosMachine{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

func (w *world) machine(name string) *v1alpha1.TalosMachine {
	w.Helper()
	m := w.machines()[name]
	if m == nil {
		w.Fatalf("there is no machine %s, only %v", name, w.names())
	}
	return m
}

// machineAt finds the machine whose address to dial this is.
func (w *world) machineAt(address string) *v1alpha1.TalosMachine {
	w.Helper()
	for _, m := range w.machines() {
		if len(m.Status.Addresses) > 0 && m.Status.Addresses[0] == address {
			return m
		}
	}
	w.Fatalf("no machine has the address %s", address)
	return nil
}

func (w *world) names() []string {
	var names []string
	for name := range w.machines() {
		names = append(names, name)
	}
	return names
}

func (w *world) cluster() *v1alpha1.TalosCluster {
	w.Helper()
	cluster, err := w.client.IchorV1alpha1().TalosClusters().Get(w.Context(), "prod", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return cluster
}

// edit changes a machine as a person or another controller does.
func (w *world) edit(name string, change func(*v1alpha1.TalosMachine)) {
	w.Helper()
	m := w.machine(name).DeepCopy()
	before := m.DeepCopy()
	change(m)
	if !equality.Semantic.DeepEqual(before.Spec, m.Spec) {
		m.Generation++
	}
	m.ResourceVersion = w.nextVersion()
	if err := w.client.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), m, ""); err != nil {
		w.Fatal(err)
	}
}

func (w *world) editCluster(change func(*v1alpha1.TalosCluster)) {
	w.Helper()
	cluster := w.cluster().DeepCopy()
	change(cluster)
	cluster.Generation++
	cluster.ResourceVersion = w.nextVersion()
	if err := w.client.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosclusters"), cluster, ""); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.Helper()
	if err := w.client.IchorV1alpha1().TalosMachines().Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// versions are the resourceVersions of everything.
func (w *world) versions() map[string]string {
	out := map[string]string{"cluster": w.cluster().ResourceVersion}
	for name, m := range w.machines() {
		out[name] = m.ResourceVersion
	}
	return out
}

// unchanged scans twice more and demands that nothing was written.
func (w *world) unchanged() {
	w.Helper()
	before := w.versions()
	w.scan()
	w.scan()
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		w.Errorf("scanning again wrote something (-before +after):\n%s", diff)
	}
}

// events drains what was told.
func (w *world) events() []string {
	var out []string
	for {
		select {
		case event := <-w.recorder.Events:
			out = append(out, event)
		default:
			return out
		}
	}
}

// resolved returns status and reason of the condition IdentityResolved.
func resolved(m *v1alpha1.TalosMachine) string {
	return conditionWords(m, v1alpha1.ConditionIdentityResolved)
}

func conditionWords(m *v1alpha1.TalosMachine, kind string) string {
	condition := meta.FindStatusCondition(m.Status.Conditions, kind)
	if condition == nil {
		return "none"
	}
	return string(condition.Status) + " " + condition.Reason
}

func message(m *v1alpha1.TalosMachine, kind string) string {
	condition := meta.FindStatusCondition(m.Status.Conditions, kind)
	if condition == nil {
		return ""
	}
	return condition.Message
}
