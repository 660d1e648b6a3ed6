// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/controllers/operation/snapshot"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

var errDead = errors.New("the controller was killed")

// process is one life of the controller. Once it is dead, nothing that it does has any effect.
type process struct {
	mu   sync.Mutex
	dead bool
	// killAt counts down to the moment of death; 0 never.
	killAt int
}

// step is called at each moment at which the process can be killed.
func (p *process) step() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errDead
	}
	if p.killAt > 0 {
		if p.killAt--; p.killAt == 0 {
			p.dead = true
			return errDead
		}
	}
	return nil
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// stack is an API with machines behind it, and a controller that can be killed and started again.
type stack struct {
	t        *testing.T
	world    *talostest.World
	api      *fake.Clientset
	kube     *kubefake.Clientset
	clock    *clocktesting.FakeClock
	bundle   *secretsbundle.Bundle
	events   *record.FakeRecorder
	process  *process
	machine  *Controller
	machines map[string]*talostest.Machine
	// nodesReady lets Nodes become ready.
	nodesReady bool
	// histories are what the server keeps of each machine's configurations, the oldest first.
	histories map[string][]v1alpha1.ConfigRevision
	sync      func()
	// drains is what a pass over a Node finds; what is there if nil.
	drains func() drain.Result
	// snapshotTakes is how long a snapshot takes.
	snapshotTakes time.Duration
}

// drainer drains for real, unless a test says what a pass finds.
type drainer struct {
	drain.Drainer
	stack *stack
}

func (d drainer) Drain(ctx context.Context, node string, options drain.Options) (drain.Result, error) {
	if d.stack.drains == nil {
		return d.Drainer.Drain(ctx, node, options)
	}
	if !options.Gone {
		return drain.Result{}, errors.New("the machine doesn't come back, and the drain wasn't told")
	}
	return d.stack.drains(), nil
}

const clusterUID = types.UID("cluster-uid")

var testBundle = sync.OnceValues(func() (*secretsbundle.Bundle, error) {
	contract, err := machineconfig.Contract()
	if err != nil {
		return nil, err
	}
	return secretsbundle.Generate(contract, time.Now())
})

func newStack(t *testing.T) *stack {
	t.Helper()
	bundle, err := testBundle()
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{
		t: t, world: talostest.NewWorld(), clock: clocktesting.NewFakeClock(time.Now()), bundle: bundle,
		machines: map[string]*talostest.Machine{}, nodesReady: true, histories: map[string][]v1alpha1.ConfigRevision{},
	}
	cluster := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: clusterUID},
		Spec: v1alpha1.TalosClusterSpec{
			SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
			ControlPlane: v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}},
		},
		Status: v1alpha1.TalosClusterStatus{
			SecretsBundleHash: bundle.Hash(),
			Conditions:        []metav1.Condition{{Type: v1alpha1.ConditionEtcdHealthy, Status: metav1.ConditionTrue, Reason: "Quorum"}},
		},
	}
	v1alpha1.SetDefaults_TalosClusterSpec(&cluster.Spec)
	s.api, s.kube = fake.NewSimpleClientset(cluster), kubefake.NewClientset()
	s.start(0)
	return s
}

// start begins a new life of the controller that ends at the given moment; 0 never.
func (s *stack) start(killAt int) {
	s.t.Helper()
	life := &process{killAt: killAt}
	s.process = life
	s.world.Before = func() error {
		if life.isDead() {
			return errDead
		}
		return nil
	}
	s.api.ReactionChain = dropReactors(s.api.ReactionChain)
	s.api.PrependReactor("update", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := life.step(); err != nil {
			return true, nil, err
		}
		return false, nil, nil
	})
	s.api.PrependReactor("create", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "history" {
			return false, nil, nil
		}
		if err := life.step(); err != nil {
			return true, nil, err
		}
		return s.keep(action.(clienttesting.CreateActionImpl))
	})
	core := kubeinformers.NewSharedInformerFactory(s.kube, 0)
	factory := externalversions.NewSharedInformerFactory(s.api, 0)
	machines, clusters, nodes := factory.Ichor().V1alpha1().TalosMachines(), factory.Ichor().V1alpha1().TalosClusters(), core.Core().V1().Nodes()
	s.events = record.NewFakeRecorder(1000)
	patches := factory.Ichor().V1alpha1().TalosConfigPatches()
	controller, err := New(Config{
		Client: s.api, Machines: machines, Clusters: clusters, Patches: patches, Nodes: nodes, NodeClient: s.kube.CoreV1(),
		Snapshots: s, Drainer: drainer{Drainer: drain.Drainer{Client: s.kube, Clock: s.clock}, stack: s},
		Bundles: s, Values: SecretValues{Secrets: s.kube.CoreV1()}, Credentials: s, Dialer: s.world, Prober: s.world, Recorder: s.events, Clock: s.clock,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(controller.queue.ShutDown)
	s.machine = controller
	s.sync = func() {
		replace(s.t, machines.Informer().GetIndexer(), func() ([]any, error) {
			list, err := s.api.IchorV1alpha1().TalosMachines().List(context.Background(), metav1.ListOptions{})
			return pointers(list.Items), err
		})
		replace(s.t, clusters.Informer().GetIndexer(), func() ([]any, error) {
			list, err := s.api.IchorV1alpha1().TalosClusters().List(context.Background(), metav1.ListOptions{})
			return pointers(list.Items), err
		})
		replace(s.t, patches.Informer().GetIndexer(), func() ([]any, error) {
			list, err := s.api.IchorV1alpha1().TalosConfigPatches().List(context.Background(), metav1.ListOptions{})
			return pointers(list.Items), err
		})
		replace(s.t, nodes.Informer().GetIndexer(), func() ([]any, error) {
			list, err := s.kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
			return pointers(list.Items), err
		})
	}
	s.sync()
}

// keep is talosmachines/history of the server: what is the newest already is kept once.
func (s *stack) keep(action clienttesting.CreateActionImpl) (bool, runtime.Object, error) {
	given := action.Object.(*v1alpha1.TalosMachineHistory)
	kept := s.histories[action.Name]
	if last := len(kept) - 1; last < 0 || kept[last].Hash != given.Revisions[0].Hash {
		s.histories[action.Name] = append(kept, given.Revisions[0])
	}
	return true, given, nil
}

// dropReactors takes the reactors of the last life off, which were prepended.
func dropReactors(chain []clienttesting.Reactor) []clienttesting.Reactor {
	return chain[len(chain)-1:]
}

func pointers[T any](items []T) []any {
	var out []any
	for i := range items {
		out = append(out, &items[i])
	}
	return out
}

func replace(t *testing.T, store interface{ Replace([]any, string) error }, list func() ([]any, error)) {
	t.Helper()
	items, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Replace(items, ""); err != nil {
		t.Fatal(err)
	}
}

func (s *stack) LoadFor(context.Context, *v1alpha1.TalosCluster) (*secretsbundle.Bundle, error) {
	return s.bundle, nil
}

// Fresh takes a snapshot each time, and keeps none.
func (s *stack) Fresh(ctx context.Context, _ *v1alpha1.TalosCluster, _ time.Time, take snapshot.Take) (string, error) {
	s.clock.Step(s.snapshotTakes)
	return "snapshot", take(ctx, io.Discard)
}

func (s *stack) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	return talos.Credentials{}, nil
}

// machineNumber n waits in maintenance mode at 10.0.0.n, and is approved.
func (s *stack) add(n int, changes ...func(*v1alpha1.TalosMachine)) string {
	s.t.Helper()
	address := fmt.Sprintf("10.0.0.%d", n)
	id := v1alpha1.MachineIdentity{
		UUID:         fmt.Sprintf("4c4c4544-0051-3610-8052-b4c04f4c%04d", n),
		SerialNumber: fmt.Sprintf("SN%d", n),
		MACAddresses: []string{fmt.Sprintf("02:00:5e:00:53:%02x", n)},
	}
	inventory := &v1alpha1.MachineInventory{
		Disks: []v1alpha1.DiskInventory{{Device: "/dev/sda", Serial: fmt.Sprintf("D%d", n), WWID: fmt.Sprintf("naa.%d", n), Transport: "sata"}},
		Links: []v1alpha1.LinkInventory{{Name: "enp1s0", PermanentMAC: id.MACAddresses[0], Addresses: []string{address + "/24"}}},
	}
	fingerprint := fmt.Sprintf("fp-%d-1", n)
	approvedAt := metav1.NewTime(s.clock.Now().Add(time.Duration(n) * time.Second))
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: id.UUID, UID: types.UID(id.UUID), Finalizers: []string{v1alpha1.MachineFinalizer}, Generation: 1},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef:    v1alpha1.ClusterReference{Name: "prod"},
			Identity:      id,
			Origin:        v1alpha1.MachineDiscovered,
			ApprovalState: v1alpha1.ApprovalApproved,
			Approval:      &v1alpha1.MachineApproval{MaintenanceFingerprint: fingerprint, At: &approvedAt, ClusterUID: clusterUID},
			Role:          v1alpha1.RoleWorker,
			Hostname:      fmt.Sprintf("node-%d", n),
			Disks:         []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: fmt.Sprintf("D%d", n)}, Role: v1alpha1.DiskSystem}},
		},
		Status: v1alpha1.TalosMachineStatus{Addresses: []string{address}, MaintenanceFingerprint: fingerprint, Inventory: inventory},
	}
	v1alpha1.SetDefaults_TalosMachineSpec(&m.Spec)
	for _, change := range changes {
		change(m)
	}
	if m.Spec.Role == v1alpha1.RoleControlPlane {
		s.changeCluster(func(c *v1alpha1.TalosCluster) {
			c.Status.ControlPlaneSlots = append(c.Status.ControlPlaneSlots, v1alpha1.ControlPlaneSlot{MachineUID: m.UID, Name: m.Name, Hostname: m.Spec.Hostname})
		})
	}
	if _, err := s.api.IchorV1alpha1().TalosMachines().Create(context.Background(), m, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	machine := talostest.NewMachine(talostest.State{
		Mode: talostest.Maintenance, Fingerprint: talos.Fingerprint(fingerprint),
		Facts: talos.Facts{
			Identity: id, Inventory: inventory, Addresses: []string{address}, TalosVersion: "v1.13.9",
			Stage: talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true},
		},
	})
	s.machines[m.Name] = machine
	s.world.Put(address, machine)
	return m.Name
}

func controlPlane(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleControlPlane }

func (s *stack) changeCluster(change func(*v1alpha1.TalosCluster)) {
	s.t.Helper()
	clusters := s.api.IchorV1alpha1().TalosClusters()
	cluster, err := clusters.Get(context.Background(), "prod", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	change(cluster)
	if err := s.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosclusters"), cluster, ""); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) changeMachine(name string, change func(*v1alpha1.TalosMachine)) {
	s.t.Helper()
	m := s.get(name)
	change(m)
	if err := s.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("talosmachines"), m, ""); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) get(name string) *v1alpha1.TalosMachine {
	s.t.Helper()
	m, err := s.api.IchorV1alpha1().TalosMachines().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// reconcile looks once at a machine, with a cache that shows everything.
func (s *stack) reconcile(name string) (time.Duration, error) {
	s.t.Helper()
	s.sync()
	after, err := s.machine.Reconcile(context.Background(), name)
	s.sync()
	return after, err
}

func (s *stack) mustReconcile(name string) *v1alpha1.TalosMachine {
	s.t.Helper()
	if _, err := s.reconcile(name); err != nil {
		s.t.Fatal(err)
	}
	return s.get(name)
}

// tick lets a machine go one step on its own way: install, reboot, boot, run, register its Node.
func (s *stack) tick(name string) {
	s.t.Helper()
	m := s.get(name)
	var register *talos.Facts
	s.machines[name].Do(func(state *talostest.State) {
		disk := &v1alpha1.SystemDisk{Device: "/dev/sda", Serial: m.Spec.Disks[0].Match.Serial}
		switch {
		case state.Config == nil:
		case state.Mode == talostest.Configured && state.Facts.SystemDisk == nil && state.Facts.Stage.Stage == v1alpha1.StageBooting:
			state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageInstalling}
		case state.Mode == talostest.Configured && state.Facts.Stage.Stage == v1alpha1.StageInstalling:
			state.Facts.SystemDisk = disk
			state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageRebooting}
		case state.Mode == talostest.Configured && state.Facts.Stage.Stage == v1alpha1.StageRebooting:
			state.Mode = talostest.Off
		case state.Mode == talostest.Off:
			state.Mode = talostest.Configured
			state.Facts.Hostname = m.Spec.Hostname
			state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageBooting}
		case state.Facts.Stage.Stage == v1alpha1.StageBooting:
			state.Facts.Stage = talos.MachineStage{Stage: v1alpha1.StageRunning, Ready: true}
			state.Facts.NodeName = m.Spec.Hostname
			state.Members = []talos.EtcdMember{{ID: 0xab, Hostname: m.Spec.Hostname}}
			state.Etcd = &talos.EtcdStatus{MemberID: 0xab, Leader: 0xab}
			facts := state.Facts
			register = &facts
		}
	})
	if register != nil {
		s.registerNode(register.NodeName, register.Addresses[0])
	}
}

func (s *stack) registerNode(name, address string) {
	s.t.Helper()
	status := corev1.ConditionFalse
	if s.nodesReady {
		status = corev1.ConditionTrue
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		},
	}
	if _, err := s.kube.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// settle reconciles and ticks until every machine is Ready, and returns the phases that each went through.
func (s *stack) settle(names ...string) map[string][]v1alpha1.MachinePhase {
	s.t.Helper()
	phases := map[string][]v1alpha1.MachinePhase{}
	for range 80 {
		ready := 0
		for _, name := range names {
			if _, err := s.reconcile(name); err != nil && !s.process.isDead() {
				s.t.Fatal(err)
			}
			if s.process.isDead() {
				return phases
			}
			m := s.get(name)
			if seen := phases[name]; len(seen) == 0 || seen[len(seen)-1] != m.Status.Phase {
				phases[name] = append(seen, m.Status.Phase)
			}
			if isTrue(m, v1alpha1.ConditionReady) {
				ready++
			}
			s.tick(name)
		}
		if ready == len(names) {
			return phases
		}
		s.clock.Step(2 * time.Second)
	}
	for _, name := range names {
		s.t.Errorf("machine %s didn't become Ready: %s", name, describeConditions(s.get(name)))
	}
	s.t.FailNow()
	return nil
}

func describeConditions(m *v1alpha1.TalosMachine) string {
	var parts []string
	for _, c := range m.Status.Conditions {
		parts = append(parts, fmt.Sprintf("%s=%s(%s: %s)", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(parts, " ")
}

func (s *stack) applies(name string) int { return len(s.machines[name].Snapshot().Applied) }

// wantCondition checks a condition and that its message holds some words.
func wantCondition(t *testing.T, m *v1alpha1.TalosMachine, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	condition := meta.FindStatusCondition(m.Status.Conditions, kind)
	if condition == nil || condition.Status != status || condition.Reason != reason {
		t.Fatalf("want condition %s=%s (%s), got %s", kind, status, reason, describeConditions(m))
	}
	for _, each := range words {
		if !strings.Contains(condition.Message, each) {
			t.Errorf("condition %s: want %q in its message, got %q", kind, each, condition.Message)
		}
	}
}

// drained are the events so far.
func (s *stack) drained() []string {
	var events []string
	for {
		select {
		case event := <-s.events.Events:
			events = append(events, event)
		default:
			return events
		}
	}
}
