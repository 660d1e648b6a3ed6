// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

const (
	uuid    = "4c4c4544-0051-3610-8052-b4c04f4c0011"
	address = "10.0.0.11"
	name    = "old-worker"
	// foreignKey is the secret of the old cluster; it must be seen nowhere.
	foreignKey = "kept-secret-foreign-key"
)

var errDead = errors.New("the controller was killed")

// scene is an API, a foreign machine, and a controller that can be killed and started again.
type scene struct {
	t          *testing.T
	world      *talostest.World
	machine    *talostest.Machine
	api        *fake.Clientset
	kube       *kubefake.Clientset
	clock      *clocktesting.FakeClock
	events     *record.FakeRecorder
	controller *Controller
	sync       func()
	// kill ends the controller at a write, counted from one; after says that the write is carried out.
	kill, writes int
	after, dead  bool
}

func talosconfig() []byte {
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	return fmt.Appendf(nil, "context: old\ncontexts:\n  old:\n    ca: %s\n    crt: %s\n    key: %s\n", encoded("ca"), encoded("crt"), encoded(foreignKey))
}

func newScene(t *testing.T, change func(*v1alpha1.MachineReclaim, *talostest.State)) *scene {
	t.Helper()
	s := &scene{t: t, world: talostest.NewWorld(), clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second))}
	state := talostest.State{
		Mode: talostest.Configured, Live: true, BootID: "boot-1", Config: []byte("version: v1alpha1\nmachine:\n  type: worker\n"),
		Facts: talos.Facts{
			Identity: v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: "SN11"}, Hostname: "old",
			SystemDisk: &v1alpha1.SystemDisk{Device: "/dev/nvme0n1", Serial: "S1"},
			Inventory: &v1alpha1.MachineInventory{Disks: []v1alpha1.DiskInventory{
				{Device: "/dev/nvme0n1", Serial: "S1"}, {Device: "/dev/sda", Serial: "S2"}, {Device: "/dev/sdb", Serial: "S3", WWID: "naa.3"},
				{Device: "/dev/sdc", WWID: "naa.3"}, {Device: "/dev/sr0", Serial: "S5", ReadOnly: true},
			}},
			Stage: talos.MachineStage{Stage: v1alpha1.StageRunning, Ready: true},
		},
	}
	reclaim := &v1alpha1.MachineReclaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "reclaim", CreationTimestamp: metav1.NewTime(s.clock.Now()), Generation: 1},
		Spec:       v1alpha1.MachineReclaimSpec{Address: address, UUID: uuid, TalosconfigSecretRef: v1alpha1.LocalSecretReference{Name: "old"}},
	}
	if change != nil {
		change(reclaim, &state)
	}
	s.machine = talostest.NewMachine(state)
	s.world.Put(address, s.machine)
	s.api = fake.NewSimpleClientset(reclaim)
	s.kube = kubefake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "old", Namespace: v1alpha1.SystemNamespace}, Data: map[string][]byte{talosconfigKey: talosconfig()},
	})
	s.events = record.NewFakeRecorder(100)
	s.world.Before = func() error {
		if s.dead {
			return errDead
		}
		return nil
	}
	s.api.PrependReactor("update", "machinereclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s.writes++
		switch {
		case s.dead:
			return true, nil, errDead
		case s.writes != s.kill:
			return false, nil, nil
		}
		s.dead = true
		if s.after {
			object := action.(clienttesting.UpdateAction).GetObject()
			if err := s.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("machinereclaims"), object, ""); err != nil {
				return true, nil, err
			}
		}
		return true, nil, errDead
	})
	s.start()
	return s
}

// start begins another life of the controller.
func (s *scene) start() {
	s.t.Helper()
	s.dead = false
	factory := externalversions.NewSharedInformerFactory(s.api, 0)
	reclaims := factory.Ichor().V1alpha1().MachineReclaims()
	controller, err := New(Config{
		Client: s.api, Reclaims: reclaims, Secrets: s.kube.CoreV1(), Dialer: s.world, Prober: s.world, Recorder: s.events, Clock: s.clock,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(controller.queue.ShutDown)
	s.controller = controller
	s.sync = func() {
		if err := reclaims.Informer().GetIndexer().Replace([]any{s.get()}, ""); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scene) get() *v1alpha1.MachineReclaim {
	s.t.Helper()
	reclaim, err := s.api.IchorV1alpha1().MachineReclaims().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return reclaim
}

func (s *scene) look() (time.Duration, error) {
	s.t.Helper()
	s.sync()
	return s.controller.Reconcile(context.Background(), name)
}

// goOn lets the controller work for a time, or until it is through.
func (s *scene) goOn(lasting time.Duration) *v1alpha1.MachineReclaim {
	s.t.Helper()
	for end := s.clock.Now().Add(lasting); s.clock.Now().Before(end) && !over(s.get()); {
		after, err := s.look()
		if s.dead {
			s.start()
			continue
		}
		if err != nil {
			s.t.Fatal(err)
		}
		s.clock.Step(max(after, time.Second))
	}
	return s.get()
}

// want checks the end, and that nothing said repeats the old cluster's secret.
func (s *scene) want(r *v1alpha1.MachineReclaim, phase v1alpha1.ReclaimPhase, resets int, words ...string) {
	s.t.Helper()
	is := s.machine.Snapshot()
	if r.Status.Phase != phase || is.Resets != resets {
		s.t.Errorf("phase %s after %d resets, want %s after %d: %s", r.Status.Phase, is.Resets, phase, resets, r.Status.Message)
	}
	for _, each := range words {
		if !strings.Contains(r.Status.Message, each) {
			s.t.Errorf("want %q in %q", each, r.Status.Message)
		}
	}
	said := fmt.Sprintf("%+v", r)
	for len(s.events.Events) > 0 {
		said += <-s.events.Events
	}
	for _, secret := range []string{foreignKey, base64.StdEncoding.EncodeToString([]byte(foreignKey))} {
		if strings.Contains(said, secret) {
			s.t.Errorf("a secret of the old cluster is shown: %s", said)
		}
	}
}
