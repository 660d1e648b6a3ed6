// SPDX-License-Identifier: Apache-2.0

package operation

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/controllers/operation/operationtest"
	"maesh.dev/ichor/controllers/operation/snapshot"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

var errDead = errors.New("the controller was killed")

// rig is an API with a cluster of machines behind it, and a controller that can be killed and started again.
type rig struct {
	t       *testing.T
	world   *talostest.World
	api     *fake.Clientset
	kube    *kubefake.Clientset
	clock   *clocktesting.FakeClock
	node    map[string]*talostest.Machine
	drainer *drainer
	gates   map[string]gates.Result
	// deprecated are the API versions that each kube-apiserver was asked for, by its address.
	deprecated map[string][]kube.DeprecatedAPI
	metricsErr error
	// rendered is what every machine should have.
	rendered string
	// life is nil while the controller lives; killAt counts down to its death.
	mu     sync.Mutex
	dead   bool
	killAt int

	controller *Controller
	recorder   *record.FakeRecorder
	sync       func()
	// down are the machines that are down now; worst is the largest number of control planes that ever were.
	down  map[string]bool
	worst int
	// slow machines stay down until the test brings them back.
	slow map[string]bool
	// deeds are what operations did, which is held against their plans when the test ends.
	deeds operationtest.Deeds
}

// drainer keeps who cordoned what.
type drainer struct {
	owner    map[string]types.UID
	blockers map[string][]drain.Blocker
	drained  []string
	check    func() error
}

const somebody = types.UID("somebody")

func (d *drainer) Cordon(_ context.Context, node string, operation types.UID) (bool, error) {
	if err := d.check(); err != nil {
		return false, err
	}
	if d.owner[node] == "" {
		d.owner[node] = operation
	}
	return d.owner[node] == operation, nil
}

func (d *drainer) Drain(_ context.Context, node string, _ drain.Options) (drain.Result, error) {
	if err := d.check(); err != nil {
		return drain.Result{}, err
	}
	if blockers := d.blockers[node]; len(blockers) > 0 {
		return drain.Result{Blockers: blockers}, nil
	}
	d.drained = append(d.drained, node)
	return drain.Result{Done: true}, nil
}

func (d *drainer) Uncordon(_ context.Context, node string, operation types.UID) error {
	if err := d.check(); err != nil {
		return err
	}
	if d.owner[node] == operation {
		delete(d.owner, node)
	}
	return nil
}

// Check implements Gatekeeper.
func (r *rig) Check(_ context.Context, gate v1alpha1.OperationGate, _ gates.Occasion) (gates.Result, error) {
	return r.gates[gate.Name], r.alive()
}

// Fresh implements Snapshots.
func (r *rig) Fresh(ctx context.Context, _ *v1alpha1.TalosCluster, _ time.Time, take snapshot.Take) (string, error) {
	if err := r.alive(); err != nil {
		return "", err
	}
	return "snapshot", take(ctx, io.Discard)
}

// StageConfiguration implements Stager.
func (r *rig) StageConfiguration(ctx context.Context, name string, anyway bool) (string, error) {
	if err := r.alive(); err != nil {
		return "", err
	}
	m, err := r.api.IchorV1alpha1().TalosMachines().Get(ctx, name, metav1.GetOptions{})
	if err != nil || !anyway && !waitsForReboot(m) {
		return "", err
	}
	r.node[name].Do(func(s *talostest.State) { s.Staged = []byte(r.rendered) })
	return machineconfig.Hash([]byte(r.rendered)), nil
}

// UnstageConfiguration implements Stager.
func (r *rig) UnstageConfiguration(_ context.Context, name string) error {
	if err := r.alive(); err != nil {
		return err
	}
	r.node[name].Do(func(s *talostest.State) { s.Staged = nil })
	return nil
}

// DeprecatedAPIs implements APIServers.
func (r *rig) DeprecatedAPIs(_ context.Context, address string) ([]kube.DeprecatedAPI, error) {
	if err := r.alive(); err != nil {
		return nil, err
	}
	return r.deprecated[address], r.metricsErr
}

// CredentialsFor implements Credentials.
func (r *rig) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	return talos.Credentials{}, r.alive()
}

// alive is asked at each moment at which the process may be killed.
func (r *rig) alive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return errDead
	}
	if r.killAt > 0 {
		if r.killAt--; r.killAt == 0 {
			r.dead = true
			return errDead
		}
	}
	return nil
}

// newRig makes a cluster of so many control planes and workers, all Ready.
func newRig(t *testing.T, controlPlanes, workers int) *rig {
	t.Helper()
	r := &rig{
		t: t, rendered: "new", world: talostest.NewWorld(), clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		node: map[string]*talostest.Machine{}, gates: map[string]gates.Result{}, down: map[string]bool{}, slow: map[string]bool{},
	}
	t.Cleanup(func() {
		if err := r.deeds.Err(); err != nil {
			t.Errorf("what was done isn't what was planned, and isn't explained: %v", err)
		}
	})
	r.drainer = &drainer{owner: map[string]types.UID{}, blockers: map[string][]drain.Blocker{}, check: r.alive}
	cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "cluster-uid"}}
	cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionEtcdHealthy, Status: metav1.ConditionTrue, Reason: "Quorum"}}
	var members []talos.EtcdMember
	for i := range controlPlanes {
		members = append(members, talos.EtcdMember{ID: uint64(i + 1), Hostname: fmt.Sprintf("cp-%d", i+1)})
		cluster.Status.EtcdMembers = append(cluster.Status.EtcdMembers, v1alpha1.EtcdMember{ID: fmt.Sprint(i + 1)})
	}
	objects, nodes := []runtime.Object{cluster}, []runtime.Object{}
	for i := range controlPlanes + workers {
		name, role, number := fmt.Sprintf("cp-%d", i+1), v1alpha1.RoleControlPlane, i+1
		if i >= controlPlanes {
			name, role, number = fmt.Sprintf("worker-%d", i-controlPlanes+1), v1alpha1.RoleWorker, 100+i
		}
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"role": string(role)}}}
		m.Spec.ClusterRef.Name, m.Spec.Role, m.Spec.ApprovalState, m.Spec.Origin = "prod", role, v1alpha1.ApprovalApproved, v1alpha1.MachineAdopted
		m.Spec.Identity = v1alpha1.MachineIdentity{UUID: fmt.Sprintf("4c4c4544-0051-3610-8052-%012d", number), MACAddresses: []string{fmt.Sprintf("02:00:00:00:00:%02x", number)}}
		m.Status.Addresses, m.Status.NodeName = []string{fmt.Sprintf("10.0.0.%d", number)}, name
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"}}
		objects = append(objects, m)
		state := talostest.State{Mode: talostest.Configured, BootID: "boot-1", Members: members, Live: true}
		state.Facts.Identity, state.Facts.Stage = m.Spec.Identity, talos.MachineStage{Stage: v1alpha1.StageRunning, Ready: true}
		if role == v1alpha1.RoleControlPlane {
			state.Etcd = &talos.EtcdStatus{MemberID: uint64(number), Leader: 1}
		}
		state.OnReboot = func(s *talostest.State) { r.goDown(name, role, s) }
		r.node[name] = talostest.NewMachine(state)
		r.world.Put(m.Status.Addresses[0], r.node[name])
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.NodeInfo.BootID = "boot-1"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes = append(nodes, node)
	}
	r.api, r.kube = fake.NewSimpleClientset(objects...), kubefake.NewClientset(nodes...)
	r.start(0)
	return r
}

// goDown is what a machine does that was told to reboot.
func (r *rig) goDown(name string, role v1alpha1.MachineRole, s *talostest.State) {
	s.Mode = talostest.Off
	r.down[name] = true
	controlPlanes := 0
	for other := range r.down {
		if other[:2] == "cp" {
			controlPlanes++
		}
	}
	if role == v1alpha1.RoleControlPlane {
		r.worst = max(r.worst, controlPlanes)
	}
}

// comeBack ends the reboots that have begun.
func (r *rig) comeBack(ctx context.Context) {
	r.t.Helper()
	for name := range r.down {
		if r.slow[name] {
			continue
		}
		delete(r.down, name)
		boot := ""
		r.node[name].Do(func(s *talostest.State) {
			s.Mode, s.BootID = talostest.Configured, fmt.Sprintf("boot-%d", s.Reboots+1)
			if s.Staged != nil {
				s.Config, s.Staged = s.Staged, nil
			}
			s.Trace = talos.TraceNone
			bootInstalled(s)
			boot = s.BootID
		})
		node, err := r.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		node.Status.NodeInfo.BootID = boot
		if _, err := r.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		r.change(name, func(m *v1alpha1.TalosMachine) {
			if m.Status.Config != nil {
				m.Status.Config.PendingReboot = false
			}
		})
	}
}

// bootInstalled boots what was installed.
func bootInstalled(s *talostest.State) {
	if name, version, found := strings.Cut(s.Installed[strings.LastIndex(s.Installed, "/")+1:], ":"); found {
		s.Facts.TalosVersion, s.Facts.SchematicID, s.Installed = version, name, ""
	}
}

// change changes a machine's object.
func (r *rig) change(name string, change func(*v1alpha1.TalosMachine)) {
	r.t.Helper()
	chain := r.api.ReactionChain
	r.api.ReactionChain = chain[len(chain)-1:] // the test isn't killed
	defer func() { r.api.ReactionChain = chain }()
	machines := r.api.IchorV1alpha1().TalosMachines()
	m, err := machines.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	change(m)
	if _, err := machines.Update(context.Background(), m, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// start begins a new life of the controller, that ends at the given moment; 0 never.
func (r *rig) start(killAt int) {
	r.t.Helper()
	r.mu.Lock()
	r.dead, r.killAt = false, killAt
	r.mu.Unlock()
	r.world.Before = func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.dead {
			return errDead
		}
		return nil
	}
	r.api.ReactionChain = r.api.ReactionChain[len(r.api.ReactionChain)-1:]
	// A process may die before a write, and after it.
	r.api.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if err := r.alive(); err != nil {
			return true, nil, err
		}
		_, object, err := r.api.ReactionChain[len(r.api.ReactionChain)-1].React(action)
		if operation, is := object.(*v1alpha1.TalosOperation); is && err == nil {
			r.deeds.Observe(operation)
		}
		if err == nil {
			err = r.alive()
		}
		return true, object, err
	})
	factory := externalversions.NewSharedInformerFactory(r.api, 0)
	operations, machines, clusters := factory.Ichor().V1alpha1().TalosOperations(), factory.Ichor().V1alpha1().TalosMachines(), factory.Ichor().V1alpha1().TalosClusters()
	if r.controller != nil {
		r.controller.errands.stop()
	}
	r.recorder = record.NewFakeRecorder(10000)
	patches := factory.Ichor().V1alpha1().TalosConfigPatches()
	controller, err := New(Config{
		Client: r.api, Operations: operations, Machines: machines, Clusters: clusters, Patches: patches,
		Nodes: r.kube.CoreV1(), Pods: r.kube.CoreV1(), APIServers: r, Credentials: r, Dialer: r.world,
		Stager: r, Drainer: r.drainer, Snapshots: r, Gates: r, Recorder: r.recorder, Clock: r.clock,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		controller.queue.ShutDown()
		controller.errands.stop()
	})
	r.controller = controller
	r.sync = func() {
		api := r.api.IchorV1alpha1()
		list, err := api.TalosOperations().List(context.Background(), metav1.ListOptions{})
		replace(r.t, operations.Informer().GetIndexer(), list.Items, err)
		listed, err := api.TalosMachines().List(context.Background(), metav1.ListOptions{})
		replace(r.t, machines.Informer().GetIndexer(), listed.Items, err)
		changes, err := api.TalosConfigPatches().List(context.Background(), metav1.ListOptions{})
		replace(r.t, patches.Informer().GetIndexer(), changes.Items, err)
		all, err := api.TalosClusters().List(context.Background(), metav1.ListOptions{})
		replace(r.t, clusters.Informer().GetIndexer(), all.Items, err)
	}
	r.sync()
}

func replace[T any](t *testing.T, store interface{ Replace([]any, string) error }, items []T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var out []any
	for i := range items {
		out = append(out, &items[i])
	}
	if err := store.Replace(out, ""); err != nil {
		t.Fatal(err)
	}
}

// create makes an operation.
func (r *rig) create(name string, change func(*v1alpha1.TalosOperationSpec)) {
	r.t.Helper()
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(r.clock.Now())}}
	operation.Spec.ClusterRef.Name = "prod"
	change(&operation.Spec)
	if _, err := r.api.IchorV1alpha1().TalosOperations().Create(context.Background(), operation, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func rebootAll(spec *v1alpha1.TalosOperationSpec) { spec.Reboot = &v1alpha1.Reboot{} }

func (r *rig) operation(name string) *v1alpha1.TalosOperation {
	r.t.Helper()
	operation, err := r.api.IchorV1alpha1().TalosOperations().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return operation
}

// look reconciles every operation once, with some seconds between.
func (r *rig) look(ctx context.Context) error {
	r.sync()
	list, err := r.api.IchorV1alpha1().TalosOperations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, operation := range list.Items {
		if _, err := r.controller.Reconcile(ctx, operation.Name); err != nil {
			errs = append(errs, err)
		}
	}
	r.clock.Step(10 * time.Second)
	return errors.Join(errs...)
}

// run looks until the operation is as wanted; machines come back between the looks.
func (r *rig) run(name string, until func(*v1alpha1.TalosOperation) bool) *v1alpha1.TalosOperation {
	r.t.Helper()
	ctx := context.Background()
	for range 400 {
		if err := r.look(ctx); err != nil {
			r.t.Fatal(err)
		}
		if operation := r.operation(name); until(operation) {
			return operation
		}
		r.comeBack(ctx)
	}
	status := r.operation(name).Status
	r.t.Fatalf("operation %s doesn't get there: it is %s: %s", name, status.Phase, status.Message)
	return nil
}

func inPhase(phase v1alpha1.OperationPhase) func(*v1alpha1.TalosOperation) bool {
	return func(o *v1alpha1.TalosOperation) bool { return o.Status.Phase == phase }
}

// control asks something of an operation, as the subresources do.
func (r *rig) control(name string, ask func(*v1alpha1.OperationControl)) {
	r.t.Helper()
	operation := r.operation(name)
	if operation.Spec.Control == nil {
		operation.Spec.Control = &v1alpha1.OperationControl{}
	}
	ask(operation.Spec.Control)
	operation.Spec.Control.By = "alice"
	if _, err := r.api.IchorV1alpha1().TalosOperations().Update(context.Background(), operation, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// reboots are how often each machine was told to reboot.
func (r *rig) reboots() map[string]int {
	out := map[string]int{}
	for name, machine := range r.node {
		if n := machine.Snapshot().Reboots; n > 0 {
			out[name] = n
		}
	}
	return out
}

// asItWas fails unless nothing is left of an operation: no claim, and no cordon but a person's.
func (r *rig) asItWas() {
	r.t.Helper()
	if err := r.look(context.Background()); err != nil { // the caches show the claim by now
		r.t.Fatal(err)
	}
	cluster, err := r.api.IchorV1alpha1().TalosClusters().Get(context.Background(), "prod", metav1.GetOptions{})
	if err != nil || cluster.Status.ActiveOperation != nil {
		r.t.Errorf("the cluster is held by %v, %v", cluster.Status.ActiveOperation, err)
	}
	for node, owner := range r.drainer.owner {
		if owner != somebody {
			r.t.Errorf("Node %s is still cordoned by %s", node, owner)
		}
	}
}

func order(o *v1alpha1.TalosOperation) []string {
	var names []string
	for _, m := range o.Status.Plan.Machines {
		names = append(names, m.Name)
	}
	return names
}
