// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controlPlane makes the machine one of a number of control planes, of whose other members so many are well.
func controlPlane(members int) func(*v1alpha1.MachineReclaim, *talostest.State) {
	return func(_ *v1alpha1.MachineReclaim, state *talostest.State) {
		state.Config = []byte("version: v1alpha1\nmachine:\n  type: controlplane\n")
		state.Etcd = &talos.EtcdStatus{MemberID: 1, Leader: 1}
		for n := range members {
			state.Members = append(state.Members, talos.EtcdMember{
				ID: uint64(n + 1), Hostname: fmt.Sprintf("old-%d", n+1), PeerURLs: []string{fmt.Sprintf("https://10.0.0.%d:2380", 11+n)},
			})
		}
	}
}

// peers puts so many other members of the old etcd into the world.
func (s *scene) peers(count int) {
	for n := range count {
		s.world.Put(fmt.Sprintf("10.0.0.%d", 12+n), talostest.NewMachine(talostest.State{
			Mode: talostest.Configured, BootID: "b", Etcd: &talos.EtcdStatus{MemberID: uint64(n + 2), Leader: 1},
		}))
	}
}

func TestAForeignMachineIsReclaimed(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(r *v1alpha1.MachineReclaim, _ *talostest.State) {
		r.Spec.WipeDisks = []v1alpha1.DiskMatch{{Serial: "S3", WWID: "naa.3"}}
	})
	var before v1alpha1.MachineReclaimStatus
	s.machine.Do(func(state *talostest.State) { state.OnReset = func() { before = s.get().Status } })
	r := s.goOn(time.Minute)
	s.want(r, v1alpha1.ReclaimSucceeded, 1, "maintenance mode", address)
	serials := func(disks []v1alpha1.ReclaimDisk) (out []string) {
		for _, disk := range disks {
			out = append(out, disk.Device+" "+disk.Serial)
		}
		return out
	}
	if diff := cmp.Diff([]string{"/dev/nvme0n1 S1", "/dev/sdb S3"}, serials(before.WillWipe)); diff != "" {
		t.Errorf("listed as to be wiped before the machine was told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/dev/sda S2", "/dev/sdc ", "/dev/sr0 S5"}, serials(before.WillKeep)); diff != "" {
		t.Errorf("listed as kept before the machine was told (-want +got):\n%s", diff)
	}
	if before.Phase != v1alpha1.ReclaimResetting || before.BootID != "boot-1" {
		t.Errorf("the intent wasn't there before the act: %+v", before)
	}
	if is := s.machine.Snapshot(); !cmp.Equal(is.WipedDisks, []string{"/dev/sdb"}) || is.Ungraceful > 0 {
		t.Errorf("wiped besides the system disk: %v, ungracefully: %d", is.WipedDisks, is.Ungraceful)
	}
	if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionComplete) || meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionFailed) {
		t.Errorf("conditions %+v", r.Status.Conditions)
	}
}

func TestWhatIsRefusedWithoutAWrite(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.MachineReclaim, *talostest.State)
		peers  int
		words  []string
	}{
		"another machine": {
			change: func(_ *v1alpha1.MachineReclaim, state *talostest.State) {
				state.Facts.Identity.UUID = "4c4c4544-0051-3610-8052-b4c04f4c9999"
			},
			words: []string{"9999", "not " + uuid},
		},
		"a machine without a UUID": {
			change: func(_ *v1alpha1.MachineReclaim, state *talostest.State) { state.Facts.Identity.UUID = "" }, words: []string{"nothing was done"},
		},
		"a disk that isn't there": {
			change: func(r *v1alpha1.MachineReclaim, _ *talostest.State) {
				r.Spec.WipeDisks = []v1alpha1.DiskMatch{{Serial: "S9"}}
			},
			words: []string{"serial number S9", "/dev/sda"},
		},
		"two disks that match": {
			change: func(r *v1alpha1.MachineReclaim, _ *talostest.State) {
				r.Spec.WipeDisks = []v1alpha1.DiskMatch{{WWID: "naa.3"}}
			},
			words: []string{"more than one", "/dev/sdb", "/dev/sdc"},
		},
		"a disk that can't be written": {
			change: func(r *v1alpha1.MachineReclaim, _ *talostest.State) {
				r.Spec.WipeDisks = []v1alpha1.DiskMatch{{Serial: "S5"}}
			},
			words: []string{"can't be written"},
		},
		"a machine that doesn't say what it runs from": {
			change: func(_ *v1alpha1.MachineReclaim, state *talostest.State) { state.Facts.SystemDisk = nil }, words: []string{"which disk"},
		},
		"the only control plane":                {change: controlPlane(1), words: []string{"only etcd member", "acceptQuorumLoss"}},
		"one of two control planes, both up":    {change: controlPlane(2), peers: 0, words: []string{"0 of the 1", "1 are needed"}},
		"one of three, of which another is off": {change: controlPlane(3), peers: 1, words: []string{"1 of the 2", "2 are needed"}},
		"a control plane whose etcd is down": {
			change: func(r *v1alpha1.MachineReclaim, state *talostest.State) {
				controlPlane(3)(r, state)
				state.Members = nil
			},
			peers: 2, words: []string{"can't be asked", "acceptQuorumLoss"},
		},
		"one of three, of which another is a learner": {
			change: func(r *v1alpha1.MachineReclaim, state *talostest.State) {
				controlPlane(3)(r, state)
				state.Members[2].Learner = true
			},
			peers: 2, words: []string{"learner"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, tc.change)
			s.peers(tc.peers)
			r := s.goOn(5 * time.Minute)
			s.want(r, v1alpha1.ReclaimRefused, 0, tc.words...)
			if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionFailed) {
				t.Errorf("conditions %+v", r.Status.Conditions)
			}
		})
	}
}

func TestControlPlanesLeaveTheirEtcdIfItKeepsItsQuorum(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		members, peers int
		accept         bool
		ungraceful     int
	}{
		"one of three, the others well":   {3, 2, false, 0},
		"the only one, and that is meant": {1, 0, true, 1},
		"one of two, and that is meant":   {2, 0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, func(r *v1alpha1.MachineReclaim, state *talostest.State) {
				controlPlane(tc.members)(r, state)
				r.Spec.AcceptQuorumLoss = tc.accept
			})
			s.peers(tc.peers)
			s.want(s.goOn(time.Minute), v1alpha1.ReclaimSucceeded, 1)
			if is := s.machine.Snapshot(); is.Ungraceful != tc.ungraceful {
				t.Errorf("%d ungraceful resets, want %d", is.Ungraceful, tc.ungraceful)
			}
		})
	}
}

// A member that answers with another's identity counts for nothing.
func TestAMemberIsAskedByItself(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlPlane(3))
	s.peers(2)
	s.world.Put("10.0.0.13", talostest.NewMachine(talostest.State{Mode: talostest.Configured, BootID: "b", Etcd: &talos.EtcdStatus{MemberID: 2, Leader: 1}}))
	s.want(s.goOn(time.Minute), v1alpha1.ReclaimRefused, 0, "1 of the 2")
}

func TestAMachineThatIchorHasIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	s.enter()
	s.want(s.goOn(time.Minute), v1alpha1.ReclaimRefused, 0, "TalosMachine "+uuid)
}

func TestAMachineThatIchorHasUnderAnotherNameIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "weak-0123456789abcdef0123"}, Spec: v1alpha1.TalosMachineSpec{Identity: v1alpha1.MachineIdentity{UUID: uuid}}}
	if _, err := s.api.IchorV1alpha1().TalosMachines().Create(context.Background(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.want(s.goOn(time.Minute), v1alpha1.ReclaimRefused, 0, "TalosMachine weak-0123456789abcdef0123")
}

// enter has discovery find the machine.
func (s *scene) enter() {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: uuid}, Spec: v1alpha1.TalosMachineSpec{Identity: v1alpha1.MachineIdentity{UUID: uuid}}}
	if _, err := s.api.IchorV1alpha1().TalosMachines().Create(context.Background(), m, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// At whatever write it is killed, before or after it, the machine is told once.
func TestKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	for kill := 1; kill <= 3; kill++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, carried out %t", kill, after), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, nil)
				s.kill, s.after = kill, after
				s.want(s.goOn(3*time.Minute), v1alpha1.ReclaimSucceeded, 1)
			})
		}
	}
}

func TestALostAnswerIsNoSecondReset(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(_ *v1alpha1.MachineReclaim, state *talostest.State) { state.LoseReset = true })
	s.want(s.goOn(3*time.Minute), v1alpha1.ReclaimSucceeded, 1)
}

// A machine that goes on as if it had heard nothing is told again, but not while it may yet begin.
func TestALostRequestIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(_ *v1alpha1.MachineReclaim, state *talostest.State) {
		state.ResetErr = status.Error(codes.Unavailable, "the connection broke")
	})
	told := 0
	s.machine.Do(func(state *talostest.State) { state.OnReset = func() { told++ } })
	s.goOn(resendAfter - 5*time.Second)
	if told != 1 {
		t.Fatalf("told %d times within %s", told, resendAfter)
	}
	s.machine.Do(func(state *talostest.State) { state.ResetErr = nil })
	s.want(s.goOn(time.Minute), v1alpha1.ReclaimSucceeded, 1)
	if told != 2 {
		t.Errorf("told %d times, want twice", told)
	}
}

func TestAMachineThatIsResettingIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(_ *v1alpha1.MachineReclaim, state *talostest.State) {
		state.ResetErr = status.Error(codes.Unavailable, "the connection broke")
	})
	told := 0
	s.machine.Do(func(state *talostest.State) {
		state.OnReset = func() { told++ }
		state.Facts.Stage.Stage = v1alpha1.StageResetting
	})
	r := s.goOn(10 * time.Minute)
	if told != 1 || r.Status.Phase != v1alpha1.ReclaimResetting {
		t.Errorf("told %d times, phase %s: %s", told, r.Status.Phase, r.Status.Message)
	}
	s.want(s.goOn(resetFor), v1alpha1.ReclaimFailed, 0, "has not come back")
}

func TestEndsThatAPersonHasToLookAt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*talostest.State)
		words   string
	}{
		"it refuses": {
			happens: func(state *talostest.State) {
				state.ResetErr = status.Error(codes.Unknown, "reset user disk failed")
			},
			words: "refuses to wipe itself",
		},
		"it rebooted and was not wiped": {
			happens: func(state *talostest.State) {
				state.ResetErr = status.Error(codes.Unavailable, "the connection broke")
				state.OnReset = func() {}
			},
			words: "rebooted and still has its configuration",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil)
			s.machine.Do(tc.happens)
			s.goOn(5 * time.Second)
			s.machine.Do(func(state *talostest.State) { state.BootID = "boot-2" })
			s.want(s.goOn(time.Minute), v1alpha1.ReclaimFailed, 0, tc.words)
		})
	}
}

// Without its configuration a machine often has another address: then discovery finds it.
func TestAMachineThatComesBackElsewhere(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	if _, err := s.look(); err != nil {
		t.Fatal(err)
	}
	s.world.Put(address, nil)
	r := s.goOn(time.Minute)
	s.want(r, v1alpha1.ReclaimResetting, 1)
	s.enter()
	s.want(s.goOn(time.Minute), v1alpha1.ReclaimSucceeded, 1, "TalosMachine "+uuid)
}

// Another machine of the old cluster takes the address over: it is left alone, also though the talosconfig lets Ichor in.
func TestAnotherMachineAtTheAddressIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	if _, err := s.look(); err != nil {
		t.Fatal(err)
	}
	other := talostest.NewMachine(talostest.State{
		Mode: talostest.Configured, BootID: "b", Facts: talos.Facts{Identity: v1alpha1.MachineIdentity{UUID: "4c4c4544-0051-3610-8052-b4c04f4c9999"}},
	})
	s.world.Put(address, other)
	r := s.goOn(5 * time.Minute)
	s.want(r, v1alpha1.ReclaimResetting, 1, "another machine", "9999")
	if other.Snapshot().Resets > 0 {
		t.Error("the other machine was reset")
	}
}

func TestWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newScene(t, nil)
	secrets := s.kube.CoreV1().Secrets(v1alpha1.SystemNamespace)
	secret, err := secrets.Get(ctx, "old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.want(s.goOn(10*time.Second), v1alpha1.ReclaimInspecting, 0, "there is no Secret old")
	broken := secret.DeepCopy()
	broken.Data[talosconfigKey] = []byte("context: old\ncontexts: {old: {ca: '" + foreignKey + "', crt: x, key: '" + foreignKey + "'}}")
	if _, err := secrets.Create(ctx, broken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.want(s.goOn(10*time.Second), v1alpha1.ReclaimInspecting, 0, "isn't base64")
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.machine.Do(func(state *talostest.State) { state.Mode = talostest.Off })
	s.want(s.goOn(30*time.Second), v1alpha1.ReclaimInspecting, 0, "doesn't let Ichor in")
	s.machine.Do(func(state *talostest.State) { state.Mode = talostest.Configured })
	s.want(s.goOn(time.Minute), v1alpha1.ReclaimSucceeded, 1)
}

func TestASilentMachineIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(_ *v1alpha1.MachineReclaim, state *talostest.State) { state.Mode = talostest.Off })
	s.want(s.goOn(inspectFor+time.Minute), v1alpha1.ReclaimFailed, 0, "nothing was done to it")
}

func TestATalosconfigOfAReader(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(_ *v1alpha1.MachineReclaim, state *talostest.State) {
		state.RunningErr = status.Error(codes.PermissionDenied, "not authorized")
	})
	s.want(s.goOn(time.Minute), v1alpha1.ReclaimRefused, 0, "os:admin")
}

func TestRunReactsAndEnds(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	ended := make(chan error, 1)
	go s.controller.Config.Reclaims.Informer().Run(ctx.Done())
	go func() { ended <- s.controller.Run(ctx, 2) }()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !over(s.get()) {
		select {
		case <-ticker.C:
			s.clock.Step(time.Second)
		case <-ctx.Done():
			t.Fatal("it isn't carried out")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
