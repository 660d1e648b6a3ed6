// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"maesh.dev/ichor/controllers/discovery"
	"maesh.dev/ichor/controllers/drain"
	machinecontroller "maesh.dev/ichor/controllers/machine"
	"maesh.dev/ichor/controllers/operation/snapshot"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/apiserver/harness"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/hollow/hollowtest"
	"maesh.dev/ichor/test/hollow/node"
)

// shop is a world with a control plane that runs, and with the controller that configures machines besides the search for
// them. Its clock runs ahead of the real one while the test waits.
type shop struct {
	*world
	secrets *hollowtest.Cluster
	bundle  *secretsbundle.Bundle
	kube    *kubefake.Clientset

	mu         sync.Mutex
	kubelet    []*node.Node
	registered map[string]netip.Addr
}

// LoadFor implements the Bundles of the machine controller.
func (s *shop) LoadFor(context.Context, *v1alpha1.TalosCluster) (*secretsbundle.Bundle, error) {
	return s.bundle, nil
}

// newShop makes a shop over two networks, so that machines can move from one to the other.
func newShop(t *testing.T) *shop {
	t.Helper()
	w := newWorld(t, 23)
	w.rack.Workload = hollowtest.FakeWorkload{}
	entry := w.rack.Machine()
	s := &shop{world: w, secrets: hollowtest.NewCluster(t, entry.Addr(), entry.Disks[0].Device), kube: kubefake.NewClientset(), registered: map[string]netip.Addr{}}
	text, err := yaml.Marshal(s.secrets.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	if s.bundle, err = secretsbundle.Parse(text); err != nil {
		t.Fatal(err)
	}
	s.controlPlane(w.rack.Start(entry))
	status := w.cluster()
	status.Status.SecretsBundleHash = s.bundle.Hash()
	meta.SetStatusCondition(&status.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEtcdHealthy, Status: metav1.ConditionTrue, Reason: "Quorum"})
	if _, err := w.env.Client(t, 0, harness.Controller).IchorV1alpha1().TalosClusters().UpdateStatus(t.Context(), status, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// controlPlane makes a machine the cluster's control plane, which workers get their certificates from.
func (s *shop) controlPlane(n *node.Node) {
	s.Helper()
	hollowtest.Wait(s, n, node.InMaintenance)
	request := &machineapi.ApplyConfigurationRequest{Data: s.secrets.Config(machinetype.TypeControlPlane), Mode: machineapi.ApplyConfigurationRequest_AUTO}
	if _, err := hollowtest.Insecure(s, n).ApplyConfiguration(s.Context(), request); err != nil {
		s.Fatal(err)
	}
	hollowtest.Wait(s, n, func(st node.Status) bool {
		return st.Stage == "booting" && st.Listening && st.Installed != nil && slices.Contains(st.Unmet, "services: etcd not running")
	})
	if err := s.secrets.Connect(n, role.Admin).Bootstrap(s.Context(), &machineapi.BootstrapRequest{}); err != nil {
		s.Fatal(err)
	}
	hollowtest.Wait(s, n, node.Running)
}

// work starts both controllers, and waits until the first scan is done.
func (s *shop) work() {
	s.Helper()
	client := s.env.Client(s, 0, harness.Controller)
	core := kubeinformers.NewSharedInformerFactory(s.kube, 0)
	factory := externalversions.NewSharedInformerFactory(client, 0)
	machines, clusters, dialer := factory.Ichor().V1alpha1().TalosMachines(), factory.Ichor().V1alpha1().TalosClusters(), talos.NewDialer(talos.DialOptions{})
	search, err := discovery.New(discovery.Config{
		Client: client, Machines: machines, Clusters: clusters, Dialer: dialer, Prober: s.prober, Credentials: ours{s.secrets},
		Recorder: &record.FakeRecorder{}, Clock: s.clock, Options: discovery.Options{Rate: rate.Inf, ProgressInterval: 1000 * time.Hour},
	})
	if err != nil {
		s.Fatal(err)
	}
	configure, err := machinecontroller.New(machinecontroller.Config{
		Client: client, Machines: machines, Clusters: clusters, Patches: factory.Ichor().V1alpha1().TalosConfigPatches(), Nodes: core.Core().V1().Nodes(), NodeClient: s.kube.CoreV1(),
		Drainer: drain.Drainer{Client: s.kube}, Snapshots: noSnapshots{},
		Bundles: s, Credentials: ours{s.secrets}, Dialer: dialer, Prober: s.prober, Recorder: &record.FakeRecorder{}, Clock: s.clock,
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	core.Start(ctx.Done())
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	for _, run := range []func(context.Context, int) error{search.Run, configure.Run} {
		running.Go(func() {
			if err := run(ctx, 4); err != nil {
				s.Errorf("run: %v", err)
			}
		})
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
		core.Shutdown()
	})
	s.Cleanup(s.stop)
	s.scan("begin")
}

// tick is how far the clock goes with each look of the test at the world.
const tick = 3 * time.Second

// soon waits while the clock runs and kubelets register.
func (s *shop) soon(what string, condition func() bool) {
	s.Helper()
	s.eventually(what, func() bool {
		s.clock.Step(tick)
		s.register()
		return condition()
	})
}

// ready waits until a machine is Ready.
func (s *shop) ready(what string, entry fleet.Machine, n *node.Node) {
	s.Helper()
	defer func() {
		if s.Failed() {
			m := s.object(entry)
			s.Logf("%s: phase %s, at %v, record %+v, conditions %+v; the machine itself: %+v", what, m.Status.Phase, m.Status.Addresses, m.Status.Provisioning, m.Status.Conditions, n.Status())
		}
	}()
	s.soon(what+" is Ready", func() bool { return s.is(entry, v1alpha1.ConditionReady) == "True "+v1alpha1.ReasonReady })
}

// start makes a machine that waits in maintenance mode.
func (s *shop) start(change func(*fleet.Machine)) (*node.Node, fleet.Machine) {
	s.Helper()
	entry := s.rack.Machine()
	change(&entry)
	n := s.rack.Start(entry)
	hollowtest.Wait(s, n, node.InMaintenance)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kubelet = append(s.kubelet, n)
	return n, entry
}

// register plays the kubelets of machines that run.
func (s *shop) register() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.kubelet {
		status := n.Status()
		if !node.Running(status) {
			continue
		}
		object := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: status.Hostname},
			Status: corev1.NodeStatus{
				Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: status.Address.String()}},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
		nodes := s.kube.CoreV1().Nodes()
		_, err := nodes.Create(context.Background(), object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) && s.registered[status.Hostname] != status.Address {
			_, err = nodes.Update(context.Background(), object, metav1.UpdateOptions{})
		}
		if err == nil {
			s.registered[status.Hostname] = status.Address
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			s.Errorf("register %s: %v", status.Hostname, err)
		}
	}
}

// approve approves a machine as a worker; a hold keeps its configuration back.
func (s *shop) approve(entry fleet.Machine, hostname string, hold bool) {
	s.Helper()
	name := nameOf(entry)
	api := s.person.IchorV1alpha1().TalosMachines()
	m := s.object(entry)
	if hold {
		m.Annotations = map[string]string{v1alpha1.HoldApplyAnnotation: ""}
		var err error
		if m, err = api.Update(s.Context(), m, metav1.UpdateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	m.Spec.ApprovalState, m.Spec.Role, m.Spec.Hostname = v1alpha1.ApprovalApproved, v1alpha1.RoleWorker, hostname
	m.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: m.Status.MaintenanceFingerprint}
	m.Spec.Disks = []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: entry.Disks[0].Serial}, Role: v1alpha1.DiskSystem}}
	if _, err := api.UpdateApproval(s.Context(), name, m, metav1.UpdateOptions{}); err != nil {
		s.Fatalf("approve %s: %v", name, err)
	}
}

// annotate sets an annotation of a machine, or takes it away with "-" as its value.
func (s *shop) annotate(entry fleet.Machine, key, value string) {
	s.Helper()
	s.eventually("annotate "+nameOf(entry), func() bool {
		m := s.object(entry)
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		if m.Annotations[key] = value; value == "-" {
			delete(m.Annotations, key)
		}
		_, err := s.person.IchorV1alpha1().TalosMachines().Update(s.Context(), m, metav1.UpdateOptions{})
		return err == nil // the controllers write too
	})
}

func nameOf(entry fleet.Machine) string { return strings.ToLower(entry.UUID) }

func (s *shop) object(entry fleet.Machine) *v1alpha1.TalosMachine {
	s.Helper()
	m, err := s.person.IchorV1alpha1().TalosMachines().Get(context.Background(), nameOf(entry), metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return m
}

// is tells status and reason of a machine's condition.
func (s *shop) is(entry fleet.Machine, kind string) string {
	s.Helper()
	condition := meta.FindStatusCondition(s.object(entry).Status.Conditions, kind)
	if condition == nil {
		return "none"
	}
	return string(condition.Status) + " " + condition.Reason
}

const applyMethod = "/machine.MachineService/ApplyConfiguration"

// sends is how often a machine was sent a configuration, and how many bytes of one came in.
func sends(n *node.Node) (calls, size uint64) {
	made := n.Status().Calls[applyMethod]
	return made.Count, made.RequestBytes
}

// elsewhere is an unused address in the other network than the machine's.
func (s *shop) elsewhere(n *node.Node) netip.Prefix {
	for {
		next := netip.PrefixFrom(s.rack.Addr(), 24)
		if !next.Masked().Contains(n.Address()) {
			return next
		}
	}
}

// noSnapshots says that there is one: no control plane is removed here.
type noSnapshots struct{}

func (noSnapshots) Fresh(context.Context, *v1alpha1.TalosCluster, time.Time, snapshot.Take) (string, error) {
	return "", nil
}
