// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	machinecontroller "maesh.dev/ichor/controllers/machine"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/documents"
)

// mender is the product's controller of machines over one hollow machine, in a cluster whose driftPolicy is Reapply.
type mender struct {
	api     *fake.Clientset
	machine *machinecontroller.Controller
	name    string
	// refresh fills the controller's caches with what the API has.
	refresh func() error
}

// keys are a cluster's secrets, and what lets the controller in.
type keys struct {
	bundle *secretsbundle.Bundle
	access talos.Credentials
}

// LoadFor implements the controller's Bundles.
func (k keys) LoadFor(context.Context, *v1alpha1.TalosCluster) (*secretsbundle.Bundle, error) {
	return k.bundle, nil
}

// CredentialsFor implements the controller's Credentials.
func (k keys) CredentialsFor(context.Context, string) (talos.Credentials, error) {
	return k.access, nil
}

// mended gives a machine that runs what it should to a controller, which finds nothing to do.
func (h *hollow) mended(t *testing.T, want []byte, patches ...*v1alpha1.TalosConfigPatch) *mender {
	t.Helper()
	if h.in.Machine.Spec.Role == v1alpha1.RoleControlPlane {
		if err := h.node.Bootstrap(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	secrets, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	address := h.machine.Address().String()
	cluster, m := h.in.Cluster.DeepCopy(), h.in.Machine.DeepCopy()
	cluster.UID, cluster.Spec.DriftPolicy = "cluster", v1alpha1.DriftPolicyReapply
	cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionEtcdHealthy, Status: metav1.ConditionTrue, Reason: "Quorum"}}
	cluster.Status.SecretsBundleHash = secrets.Hash()
	who, err := h.node.Identity(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	hash, now := machineconfig.Hash(want), metav1.Now()
	m.UID, m.Spec.Identity, m.Spec.ApprovalState = types.UID(m.Name), who, v1alpha1.ApprovalApproved
	m.Spec.Origin, m.Spec.Approval = v1alpha1.MachineDiscovered, &v1alpha1.MachineApproval{At: &now}
	m.Status.Addresses, m.Status.SettledVersions = []string{address}, h.in.Facts.Versions.DeepCopy()
	m.Status.Provisioning = &v1alpha1.ProvisioningStatus{ConfigHash: hash, Address: address, IntendedAt: &now, AppliedAt: &now}
	m.Status.Config = &v1alpha1.MachineConfigStatus{RenderedHash: hash, AppliedHash: hash}
	objects := []runtime.Object{cluster, m}
	for _, patch := range patches {
		patch = patch.DeepCopy()
		patch.UID = types.UID("patch-" + patch.Name)
		objects = append(objects, patch)
	}
	values := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "examples", Namespace: v1alpha1.SystemNamespace, Labels: map[string]string{v1alpha1.PatchValuesLabel: "true"}},
		Data:       map[string][]byte{},
	}
	for key, value := range documents.Secrets() {
		values.Data[key] = []byte(value)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Spec.Hostname}, Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	mend := &mender{api: fake.NewSimpleClientset(objects...), name: m.Name}
	mend.control(t, kubefake.NewClientset(values, node), keys{secrets, h.access}, objects, node)
	var is *v1alpha1.TalosMachine
	for range 10 {
		if is = mend.look(t); meta.IsStatusConditionTrue(is.Status.Conditions, v1alpha1.ConditionReady) {
			break
		}
	}
	if !meta.IsStatusConditionTrue(is.Status.Conditions, v1alpha1.ConditionReady) || is.Status.Config.DriftCount > 0 {
		t.Fatalf("the controller doesn't find the machine well: %+v, %+v", is.Status.Conditions, is.Status.Config)
	}
	return mend
}

// control makes the controller; nothing of it runs by itself.
func (m *mender) control(t *testing.T, kube *kubefake.Clientset, keys keys, objects []runtime.Object, node *corev1.Node) {
	t.Helper()
	// The history is a door of its own, which the fake API takes for another machine.
	m.api.PrependReactor("create", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "history", &v1alpha1.TalosMachineHistory{}, nil
	})
	factory, core := externalversions.NewSharedInformerFactory(m.api, 0), kubeinformers.NewSharedInformerFactory(kube, 0)
	ichor, nodes := factory.Ichor().V1alpha1(), core.Core().V1().Nodes()
	controller, err := machinecontroller.New(machinecontroller.Config{
		Client: m.api, Machines: ichor.TalosMachines(), Clusters: ichor.TalosClusters(), Patches: ichor.TalosConfigPatches(), Nodes: nodes, NodeClient: kube.CoreV1(),
		Bundles: keys, Values: machinecontroller.SecretValues{Secrets: kube.CoreV1()}, Credentials: keys, Dialer: dialer,
		Prober: talos.NewProber(talos.ProbeOptions{}), Recorder: record.NewFakeRecorder(1 << 16),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, end := context.WithCancel(context.Background())
		end()
		_ = controller.Run(over, 1) // it ends its queue, and says that it didn't begin
	})
	m.machine = controller
	if err := nodes.Informer().GetIndexer().Add(node); err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		switch object.(type) {
		case *v1alpha1.TalosCluster:
			err = ichor.TalosClusters().Informer().GetIndexer().Add(object)
		case *v1alpha1.TalosConfigPatch:
			err = ichor.TalosConfigPatches().Informer().GetIndexer().Add(object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m.refresh = func() error {
		is, err := m.api.IchorV1alpha1().TalosMachines().Get(context.Background(), m.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return ichor.TalosMachines().Informer().GetIndexer().Update(is)
	}
}

// look lets the controller look at the machine once.
func (m *mender) look(t *testing.T) *v1alpha1.TalosMachine {
	t.Helper()
	if err := m.refresh(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.machine.Reconcile(patient(t), m.name); err != nil {
		t.Fatal(err)
	}
	is, err := m.api.IchorV1alpha1().TalosMachines().Get(patient(t), m.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// mend has the controller deal with a change that somebody made by hand, and says what it did wrong.
func (m *mender) mend(t *testing.T, h *hollow, late bool) error {
	t.Helper()
	before := len(h.machine.Applies())
	is := m.look(t)
	switch config := is.Status.Config; {
	case config.DriftCount != 1:
		return fmt.Errorf("the controller counts %d places that differ: %+v", config.DriftCount, config.Drift)
	case !late:
		if sent := len(h.machine.Applies()) - before; sent != 1 {
			return fmt.Errorf("the controller sent %d configurations, want 1: %+v", sent, is.Status.Conditions)
		}
		if is = m.look(t); !meta.IsStatusConditionTrue(is.Status.Conditions, v1alpha1.ConditionReady) || is.Status.Config.DriftCount > 0 {
			return fmt.Errorf("the controller sent the configuration again, and says: %+v, %+v", is.Status.Config.Drift, is.Status.Conditions)
		}
		return nil
	}
	is = m.look(t)
	applied := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionConfigApplied)
	drifted := meta.IsStatusConditionTrue(is.Status.Conditions, v1alpha1.ConditionDriftDetected)
	if sent := len(h.machine.Applies()) - before; sent > 0 || !drifted || applied == nil || applied.Reason != v1alpha1.ReasonRebootRequired {
		return fmt.Errorf("it needs a reboot; the controller sent %d configurations, and says: %+v", sent, is.Status.Conditions)
	}
	return nil
}

// said is what the controller wrote about the machine.
func (m *mender) said(t *testing.T) string {
	t.Helper()
	is, err := m.api.IchorV1alpha1().TalosMachines().Get(patient(t), m.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%+v", is.Status)
}
