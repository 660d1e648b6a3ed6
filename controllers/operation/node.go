// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/talos"
)

// askTimeout bounds what one machine is asked in one attempt.
const askTimeout = 20 * time.Second

// reach connects to the very machine: who it is is read on the connection that is returned.
func (v *visit) reach(ctx context.Context, m *v1alpha1.TalosMachine) (talos.ConfiguredNode, error) {
	credentials, err := v.Credentials.CredentialsFor(ctx, v.cluster.Name)
	if err != nil {
		return nil, fmt.Errorf("get access to cluster %s: %w", v.cluster.Name, err)
	}
	return talos.Reach(ctx, v.Dialer, credentials, m)
}

// bootID reads the machine's boot id.
func (v *visit) bootID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return "", err
	}
	defer node.Close() //nolint:errcheck // it was read from only
	return node.BootID(ctx)
}

// rebooter is a node that can be rebooted.
type rebooter interface {
	Reboot(ctx context.Context, powerCycle bool) error
}

// forfeiter is a node whose member can hand the lead of etcd over.
type forfeiter interface {
	EtcdForfeitLeadership(ctx context.Context) error
}

// rebootPatience is how long a machine that was told to reboot may go on running before it is told again.
const rebootPatience = 2 * time.Minute

// reboot tells the machine to reboot, unless its boot id shows that it did. Before it is told, each time, everything is asked
// once more that the drain may have left behind: gates, the snapshot, what is to be staged. A cancelled operation tells
// nothing any more.
func (v *visit) reboot(ctx context.Context) (outcome, error) {
	came, err := v.rebooted(ctx)
	if err != nil || came.done || came.message != "" {
		return came, err
	}
	if v.record.State == v1alpha1.StepActed && v.now.Sub(v.record.At.Time) < rebootPatience {
		return waiting("was told to reboot, and still runs")
	}
	if v.cancelled() {
		if v.lasted(v.record) < rebootPatience {
			return waiting("the operation is cancelled; whether the machine was told to reboot before isn't known yet")
		}
		return outcome{needless: true, message: "the operation was cancelled before the machine rebooted"}, nil
	}
	if came, err := v.mayGoDown(ctx); err != nil || !came.done {
		return came, err
	}
	if ask := v.kind().beforeReboot; ask != nil {
		if came, err := ask(v, ctx); err != nil || !came.done {
			return came, err
		}
	}
	return v.tellReboot(ctx)
}

// mayGoDown asks once more what the drain may have left behind.
func (v *visit) mayGoDown(ctx context.Context) (outcome, error) {
	if why, err := v.ownGates(ctx); err != nil || why != "" {
		return outcome{message: why}, err
	}
	if v.m.Spec.Role == v1alpha1.RoleControlPlane {
		return v.snapshot(ctx)
	}
	return outcome{done: true}, nil
}

// rebooted tells whether the machine is in another boot than the one that was written down, or what keeps it from being
// told; neither if it runs in that boot still.
func (v *visit) rebooted(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return waiting("doesn't answer: %s", err)
	}
	defer node.Close() //nolint:errcheck // it was read from only
	return v.sameBoot(ctx, node)
}

// sameBoot is rebooted, on a connection.
func (v *visit) sameBoot(ctx context.Context, node talos.ConfiguredNode) (outcome, error) {
	id, err := node.BootID(ctx)
	if err != nil {
		return waiting("its boot id can't be read: %s", err)
	}
	if id != v.record.BootID {
		return done("rebooted: the boot id was %s and is %s", v.record.BootID, id)
	}
	stage, err := node.Stage(ctx)
	if err != nil {
		return waiting("its stage can't be read: %s", err)
	}
	if stage.Stage != v1alpha1.StageRunning && stage.Stage != v1alpha1.StageBooting {
		return waiting("is %s", stage.Stage)
	}
	return outcome{}, nil
}

// tellReboot tells the machine on the connection on which its boot id was read, which ends with the boot: a machine is not
// told twice for one reboot.
func (v *visit) tellReboot(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return waiting("doesn't answer: %s", err)
	}
	defer node.Close() //nolint:errcheck // what it was told was answered
	if came, err := v.sameBoot(ctx, node); err != nil || came.done || came.message != "" {
		return came, err
	}
	target, ok := node.(rebooter)
	if !ok {
		return outcome{}, errors.New("the connection to the machine can't reboot it")
	}
	powerCycle := v.op.Spec.Reboot != nil && v.op.Spec.Reboot.Mode == v1alpha1.RebootPowerCycle
	if err := target.Reboot(ctx, powerCycle); err != nil && !talos.IsLost(err) {
		return waiting("refused to reboot: %s", err)
	}
	return outcome{acted: true, message: "was told to reboot"}, nil
}

// handOver moves the lead of etcd to another member, so that its loss isn't noticed by an election.
func (v *visit) handOver(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return waiting("doesn't answer: %s", err)
	}
	defer node.Close() //nolint:errcheck // what it was told was answered
	status, err := node.EtcdStatus(ctx)
	if err != nil && v.kind().mends {
		return done("its etcd doesn't answer, and leads nothing for long: %s", err)
	}
	if err != nil {
		return waiting("its etcd doesn't answer: %s", err)
	}
	if status.Leader != status.MemberID {
		return done("doesn't lead etcd")
	}
	members, err := node.EtcdMembers(ctx)
	if err != nil {
		return waiting("its etcd doesn't answer: %s", err)
	}
	if len(members) == 1 {
		return done("etcd has no other member")
	}
	target, ok := node.(forfeiter)
	if !ok {
		return outcome{}, errors.New("the connection to the machine can't hand the lead of etcd over")
	}
	if err := target.EtcdForfeitLeadership(ctx); err != nil {
		return waiting("can't hand the lead of etcd over: %s", err)
	}
	return waiting("hands the lead of etcd over")
}

// verify waits until the machine is back: in another boot, with everything running, and its Node ready in that boot.
func (v *visit) verify(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return waiting("doesn't answer yet: %s", err)
	}
	defer node.Close() //nolint:errcheck // it was read from only
	id, err := node.BootID(ctx)
	if err != nil {
		return waiting("its boot id can't be read: %s", err)
	}
	if id == v.record.BootID {
		return waiting("hasn't rebooted yet")
	}
	if ask := v.kind().booted; ask != nil {
		if came, err := ask(v, ctx, node); err != nil || !came.done {
			return came, err
		}
	}
	stage, err := node.Stage(ctx)
	if err != nil {
		return waiting("its stage can't be read: %s", err)
	}
	if stage.Stage != v1alpha1.StageRunning || !stage.Ready {
		return waiting("is %s, and not ready yet: %v", stage.Stage, stage.Unmet)
	}
	if v.m.Spec.Role == v1alpha1.RoleControlPlane {
		status, err := node.EtcdStatus(ctx)
		if err != nil {
			return waiting("its etcd doesn't answer yet: %s", err)
		}
		if !status.KnowsLeader() || status.Learner {
			return waiting("its etcd member doesn't vote yet")
		}
	}
	if came, err := v.nodeBack(ctx, id); err != nil || !came.done {
		return came, err
	}
	if ask := v.kind().verified; ask != nil {
		if came, err := ask(v, ctx, node); err != nil || !came.done {
			return came, err
		}
	}
	return done("runs, and its Node is ready")
}

// nodeBack tells whether the machine's Node is ready in the given boot: what it said in an earlier one stays for a while.
func (v *visit) nodeBack(ctx context.Context, bootID string) (outcome, error) {
	node, err := v.node(ctx)
	if err != nil {
		return outcome{}, err
	}
	if node == nil {
		return done("it has no Node")
	}
	if seen := node.Status.NodeInfo.BootID; seen != "" && seen != bootID {
		return waiting("Node %s hasn't been heard of since the reboot", node.Name)
	}
	if ready, why := kube.NodeReady(node); !ready {
		return waiting("%s", why)
	}
	return done("Node %s is ready", node.Name)
}

// node reads the machine's Node from the API itself; nil if it has none.
func (v *visit) node(ctx context.Context) (*corev1.Node, error) {
	if v.m.Status.NodeName == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node, err := v.Nodes.Nodes().Get(ctx, v.m.Status.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Node %s: %w", v.m.Status.NodeName, err)
	}
	return node, nil
}

func (v *visit) cordon(ctx context.Context) (outcome, error) {
	node, err := v.node(ctx)
	if err != nil {
		return outcome{}, err
	}
	if node == nil {
		return done("it has no Node")
	}
	ours, err := v.Drainer.Cordon(ctx, node.Name, v.op.UID)
	if err != nil {
		return outcome{}, err
	}
	if v.record.Cordoned = ours; !ours {
		return done("Node %s was cordoned by somebody else, and stays so", node.Name)
	}
	return done("Node %s is cordoned", node.Name)
}

func (v *visit) drain(ctx context.Context) (outcome, error) {
	node, err := v.node(ctx)
	if err != nil {
		return outcome{}, err
	}
	if node == nil {
		return done("it has no Node")
	}
	found, err := v.Drainer.Drain(ctx, node.Name, drain.Options{Spec: v.op.Spec.Drain})
	switch {
	case err != nil:
		return waiting("%s", err)
	case !found.Done:
		return waiting("%s", found.Message())
	case len(found.Left) > 0:
		return done("Node %s is drained, %s", node.Name, found.Message())
	default:
		return done("Node %s is drained", node.Name)
	}
}

// uncordon puts back what was put aside.
func (v *visit) uncordon(ctx context.Context) (outcome, error) {
	if ask := v.kind().putBack; ask != nil && v.cancelled() {
		if came, err := ask(v, ctx); err != nil || !came.done {
			return came, err
		}
	}
	node, err := v.node(ctx)
	if err != nil {
		return outcome{}, err
	}
	if node != nil {
		if err := v.Drainer.Uncordon(ctx, node.Name, v.op.UID); err != nil {
			return outcome{}, err
		}
	}
	v.record.Cordoned = false
	return done("it is as it was found")
}
