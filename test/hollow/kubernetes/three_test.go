// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/test/hollow/kubernetes"
	"maesh.dev/ichor/test/hollow/kubernetes/configtest"
	"maesh.dev/ichor/test/hollow/workload"
)

// quickCluster notices silent nodes sooner, and signs certificates so short that kubelets renew them at every look: the
// signer backdates by five minutes, so four fifths of the life are over at once.
const quickCluster = `
cluster:
  controllerManager:
    extraArgs: {node-monitor-grace-period: 8s, cluster-signing-duration: 60s}
`

func TestThreeControlPlanes(t *testing.T) {
	block := claim(t)
	cluster := configtest.New(t, endpoint(block.Addr(1)))
	factory := newFactory(t, func(o *kubernetes.Options) { o.LeaseEvery = 2 * time.Second })

	boxes := make([]*box, 3)
	for i := range boxes {
		boxes[i] = newBox(t, factory, fmt.Sprintf("cp-%d", i+1), block.Addr(i+1), cluster.ControlPlane(t, quickCluster))
	}

	first, second, third := boxes[0], boxes[1], boxes[2]

	t.Run("two join the bootstrapped one as learners and become voters", func(t *testing.T) {
		for _, b := range boxes {
			b.boot(t)
		}

		first.bootstrap(t, &machine.BootstrapRequest{})

		learners := map[string]bool{}

		waitUntil(t, "three voters", func() error {
			members, err := members(t, first, false)
			if err != nil {
				return err
			}

			for _, member := range members {
				if member.GetIsLearner() {
					learners[member.GetHostname()] = true
				}
			}

			return wantVoters(members, "cp-1", "cp-2", "cp-3")
		})

		if learners["cp-1"] {
			t.Error("the bootstrapped member was a learner")
		}

		for _, b := range boxes {
			b.wait(t, "up", isUp)
		}
	})

	t.Run("a kubelet renews its certificate", func(t *testing.T) {
		path := filepath.Join(second.machine.EphemeralDir, "lib", "kubelet", "pki", "kubelet-client-current.pem")

		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		waitUntil(t, "another certificate", func() error {
			after, readErr := os.ReadFile(path)
			if readErr == nil && bytes.Equal(before, after) {
				readErr = errors.New("the certificate is the same")
			}

			return readErr
		})

		if err = wantReady(t, first, "cp-2", corev1.ConditionTrue); err != nil {
			t.Error(err)
		}
	})

	t.Run("leadership moves", func(t *testing.T) {
		leader, other := findLeader(t, boxes)

		name, err := other.runtime.EtcdForfeitLeadership(t.Context())
		if err != nil || name != "" {
			t.Errorf("forfeiting what one doesn't have: got %q, %v, want nothing", name, err)
		}

		name, err = leader.runtime.EtcdForfeitLeadership(t.Context())
		if err != nil || name == "" || name == leader.machine.Name {
			t.Errorf("forfeiting: got %q, %v, want another member", name, err)
		}
	})

	t.Run("the cluster works while one is without power", func(t *testing.T) {
		third.stop(t, true)

		client, _ := first.client(t)
		waitUntil(t, "node without power is noticed", func() error {
			return wantReady(t, first, "cp-3", corev1.ConditionUnknown)
		})

		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "meanwhile"},
		}, metav1.CreateOptions{}); err != nil {
			t.Errorf("write with two of three: %v", err)
		}

		third.boot(t)
		third.wait(t, "up again", isUp)
	})

	t.Run("a member that lost its data takes the place of its old self", func(t *testing.T) {
		old := third.current().EtcdMemberID

		third.stop(t, true)
		third.wipe(t)
		third.boot(t)
		third.wait(t, "up again", isUp)

		members, err := members(t, first, false)
		if err != nil {
			t.Fatal(err)
		}

		if err = wantVoters(members, "cp-1", "cp-2", "cp-3"); err != nil {
			t.Error(err)
		}

		if third.current().EtcdMemberID == old {
			t.Errorf("member id is still %x, want another one", old)
		}
	})

	t.Run("a member leaves and takes its static pods with it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
		defer cancel()

		if err := second.runtime.EtcdLeaveCluster(ctx); err != nil {
			t.Fatal(err)
		}

		second.wait(t, "etcd finished and nothing depends on it", func(s workload.Status) bool {
			return service(s, "etcd").State == "Finished" && len(s.StaticPods) == 0
		})

		members, err := members(t, first, true)
		if err != nil {
			t.Fatal(err)
		}

		if err = wantVoters(members, "cp-1", "cp-3"); err != nil {
			t.Error(err)
		}
	})

	t.Run("a member is removed by its id", func(t *testing.T) {
		if err := first.runtime.EtcdRemoveMemberByID(t.Context(), third.current().EtcdMemberID); err != nil {
			t.Fatal(err)
		}

		waitUntil(t, "one voter", func() error {
			members, err := members(t, first, true)
			if err != nil {
				return err
			}

			return wantVoters(members, "cp-1")
		})
		third.wait(t, "etcd unhealthy", func(s workload.Status) bool { return !service(s, "etcd").Healthy })
	})
}

func members(t *testing.T, b *box, local bool) ([]*machine.EtcdMember, error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience(5*time.Second))
	defer cancel()

	list, err := b.runtime.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: local})

	return list.GetMembers(), err
}

func wantVoters(members []*machine.EtcdMember, names ...string) error {
	voters := map[string]bool{}

	for _, member := range members {
		if !member.GetIsLearner() {
			voters[member.GetHostname()] = true
		}
	}

	for _, name := range names {
		if !voters[name] {
			return fmt.Errorf("%s is no voter among %v", name, members)
		}
	}

	if len(members) != len(names) {
		return fmt.Errorf("members are %v, want %v", members, names)
	}

	return nil
}

func findLeader(t *testing.T, boxes []*box) (leader, other *box) {
	t.Helper()

	for _, b := range boxes {
		status, err := b.runtime.EtcdStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if status.GetLeader() == status.GetMemberId() {
			leader = b
		} else {
			other = b
		}
	}

	if leader == nil {
		t.Fatal("no member leads")
	}

	return leader, other
}
