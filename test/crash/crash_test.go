// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack"
)

const (
	// look is the time between two looks at a condition.
	look = 250 * time.Millisecond
	// slowness is how much longer everything may take where CI is set.
	slowness = 4
	// startFor, provisionFor and stopFor bound the parts of a run.
	startFor     = 8 * time.Minute
	provisionFor = 8 * time.Minute
	stopFor      = time.Minute
	// quiet is how long no write may have been killed at when all is done.
	quiet = 6 * time.Second
)

// bound is how long something may take on this machine.
func bound(d time.Duration) time.Duration {
	if os.Getenv("CI") != "" || chaos() {
		return slowness * d
	}
	return d
}

// chaos asks for the long form.
func chaos() bool { return os.Getenv("ICHOR_CHAOS") != "" }

// crashes is one run: a stack whose parts die.
type crashes struct {
	// dir is the stack's folder.
	dir        string
	stack      *localstack.Stack
	ichor      *versioned.Clientset
	kubernetes *kubernetes.Clientset
	strikes    *strikes
	begin      time.Time
	// controllers is how many there are, 1 if zero.
	controllers int
	// noted are the times of kills of members of etcd, by the machine's name in the fleet.
	noted map[string][]time.Time
}

// plan says where to kill.
type plan struct {
	name string
	// swap kills at requests on their way instead of when they were answered, and at each machine's calls at the other
	// one of these moments.
	swap bool
	// calm kills at no write.
	calm bool
	// early and late are how many random kills the bootstrap and the controller meet besides.
	early, late int
}

// plans of the short form and of the long one.
func plans() []plan {
	all := []plan{{name: "at every write and at random", early: 3, late: 7}}
	if chaos() {
		all = append(all, plan{name: "at every write on its way and at random", swap: true, early: 3, late: 7})
		for round := range 3 {
			all = append(all, plan{name: fmt.Sprintf("at random alone, round %d", round+1), calm: true, early: 3, late: 7})
		}
	}
	return all
}

// TestKilled brings three control planes and two workers from nothing to Ready, and then a changed patch to some of them, and
// (in the long form) destroys the cluster in the end, while the bootstrap and the controller are killed.
func TestKilled(t *testing.T) {
	for _, p := range plans() {
		t.Run(p.name, func(t *testing.T) { killedRun(t, p) })
	}
}

// joining are the machines besides the first control plane, in the order in which they are approved.
var joining = []struct {
	role     v1alpha1.MachineRole
	hostname string
}{
	{v1alpha1.RoleControlPlane, "cp-2"}, {v1alpha1.RoleWorker, "worker-1"}, {v1alpha1.RoleControlPlane, "cp-3"}, {v1alpha1.RoleWorker, "worker-2"},
}

func killedRun(t *testing.T, p plan) {
	c := &crashes{strikes: newStrikes(t), begin: time.Now()}
	folder := t.TempDir()
	t.Setenv(folderEnv, folder)
	if p.swap {
		t.Setenv(swapEnv, "1")
	}
	if p.calm {
		t.Setenv(calmEnv, "1")
	}
	c.strikes.left = p.early
	c.start(t)
	before := c.secret(t)
	names := c.found(t)
	c.approve(t, names)
	c.strikeController(t, p.late)
	c.ready(t, len(joining)+1)
	c.settle(t)
	c.ready(t, len(joining)+1)
	c.tell(t)
	c.checkWrites(t, p)
	c.checkMachines(t)
	c.checkCluster(t)
	c.reconfigured(t, p)
	if after := c.secret(t); after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Secret with the bundle was written again: %s, then %s", before.ResourceVersion, after.ResourceVersion)
	}
	if chaos() {
		c.destroyed(t, p)
	}
}

// start starts a stack whose bootstrap and controller die.
func (c *crashes) start(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ichor-crash-")
	if err != nil {
		t.Fatal(err)
	}
	c.dir = dir
	ctx, cancel := context.WithTimeout(t.Context(), bound(startFor))
	defer cancel()
	c.stack, err = localstack.Start(ctx, localstack.Options{
		StateDir: dir, BinDir: programs(t), Machines: len(joining) + 1, Interval: 10 * time.Second, Bootstrap: c.bootstrapKilled, Controllers: c.controllers, NoPods: true,
		Progress: func(message string) { t.Logf("%5.1fs %s", time.Since(c.begin).Seconds(), message) },
	})
	if err != nil {
		c.tell(t)
		t.Fatalf("start the stack: %v\nits folder is kept: %s\nthe bootstrap's log:\n%s", err, dir, tail(at("bootstrap.log")))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound(stopFor))
		defer cancel()
		if err := c.stack.Stop(ctx); err != nil {
			t.Errorf("end the stack: %v", err)
		}
		if err := nobodyOf(dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the stack's folder with its logs is kept: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the stack's folder: %v", err)
		}
	})
	admin := c.stack.Admin()
	c.ichor, c.kubernetes = versioned.NewForConfigOrDie(admin), kubernetes.NewForConfigOrDie(admin)
}

// programs is a folder with what `make build` made, but with this test in the place of ichor-controller.
func programs(t *testing.T) string {
	t.Helper()
	made, err := filepath.Abs(filepath.Join("..", "..", "bin")) // a test runs in its own folder
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"hollow", "kube", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "ichor-apiserver", "ichor"} {
		if err := os.Symlink(filepath.Join(made, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(self, filepath.Join(dir, asController)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// eventually waits until a condition holds; its last fault is shown if it never does.
func eventually(t *testing.T, patience time.Duration, condition func() error) {
	t.Helper()
	timer := time.NewTimer(bound(patience))
	defer timer.Stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-timer.C:
			t.Fatalf("not within %s: %v", bound(patience), err)
		case <-ticker.C:
		}
	}
}

// machines are all machines of the cluster.
func (c *crashes) machines(t *testing.T) []v1alpha1.TalosMachine {
	t.Helper()
	list, err := c.ichor.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// found are the names of the machines that wait, in the order of the fleet. The stack saw to it that all were found.
func (c *crashes) found(t *testing.T) []string {
	t.Helper()
	var names []string
	all := c.stack.Fleet().Machines
	for i := range all {
		if all[i].UUID != c.stack.First().UUID {
			names = append(names, all[i].UUID)
		}
	}
	if have := c.machines(t); len(have) != len(names)+1 {
		t.Fatalf("%d machines were entered, want %d", len(have), len(names)+1)
	}
	return names
}

// approve approves machines as those of joining, as a person would.
func (c *crashes) approve(t *testing.T, names []string) {
	t.Helper()
	for i, name := range names {
		wanted := joining[i]
		m, err := c.ichor.IchorV1alpha1().TalosMachines().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{
			"approvalState": v1alpha1.ApprovalApproved,
			"approval":      map[string]any{"maintenanceFingerprint": m.Status.MaintenanceFingerprint, "reason": "crash test"},
			"role":          wanted.role,
			"hostname":      wanted.hostname,
			"disks":         []any{map[string]any{"match": map[string]any{"serial": nvme(t, c.hardware(t, name))}, "role": v1alpha1.DiskSystem}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ichor.IchorV1alpha1().TalosMachines().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "approval"); err != nil {
			t.Fatalf("approve %s as %s: %v", name, wanted.hostname, err)
		}
	}
}

// nvme is the serial number of the disk to install on: every generated machine has an NVMe disk.
func nvme(t *testing.T, m *fleet.Machine) string {
	t.Helper()
	i := slices.IndexFunc(m.Disks, func(d fleet.Disk) bool { return d.Transport == "nvme" && d.Serial != "" })
	if i < 0 {
		t.Fatalf("machine %s has no NVMe disk", m.Name)
	}
	return m.Disks[i].Serial
}

// hardware is the fleet's entry of a machine.
func (c *crashes) hardware(t *testing.T, name string) *fleet.Machine {
	t.Helper()
	all := c.stack.Fleet().Machines
	for i := range all {
		if all[i].UUID == name {
			return &all[i]
		}
	}
	t.Fatalf("the fleet has no machine with UUID %s", name)
	return nil
}

// ready waits until so many machines are Ready. The API server may be slow while it is busy, so it is asked again.
func (c *crashes) ready(t *testing.T, count int) {
	t.Helper()
	eventually(t, provisionFor, func() error {
		list, err := c.ichor.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready, rest := 0, ""
		for i := range list.Items {
			m := &list.Items[i]
			if isReady(m) {
				ready++
				continue
			}
			rest += fmt.Sprintf("\n%s %s: phase %s, stage %s, conditions %+v", m.Name, m.Spec.Hostname, m.Status.Phase, m.Status.Stage, m.Status.Conditions)
		}
		if ready != count {
			return fmt.Errorf("%d machines are Ready, want %d; the others:%s", ready, count, rest)
		}
		return nil
	})
	t.Logf("%5.1fs %d machines are Ready", time.Since(c.begin).Seconds(), count)
}

func isReady(m *v1alpha1.TalosMachine) bool {
	return slices.ContainsFunc(m.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == v1alpha1.ConditionReady && condition.Status == metav1.ConditionTrue
	})
}

// settle waits until no write kills any more.
func (c *crashes) settle(t *testing.T) {
	t.Helper()
	last, since := "", time.Now()
	eventually(t, provisionFor, func() error {
		now := strings.Join(append(c.kills(t, asController), c.kills(t, partBootstrap)...), "\n")
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("the controller was killed less than %s ago", quiet)
		}
		return nil
	})
}

// secret is the Secret that holds the bundle.
func (c *crashes) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	ref := c.cluster(t).Spec.SecretsRef
	secret, err := c.kubernetes.CoreV1().Secrets(ref.Namespace).Get(t.Context(), ref.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func (c *crashes) cluster(t *testing.T) *v1alpha1.TalosCluster {
	t.Helper()
	cluster, err := c.ichor.IchorV1alpha1().TalosClusters().Get(t.Context(), localstack.ClusterName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}
