// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/chaos/operations"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
)

const (
	// upgradedTo is a version that no machine has before.
	upgradedTo = "v1.14.1"
	// upgradeFor bounds an upgrade whose controller dies at each of its writes.
	upgradeFor = 20 * time.Minute
	// installFor is how long each installer runs, so that the controller dies while one does.
	installFor = 3 * time.Second
)

// operationRuns are the runs of operations; they are for the long form.
func operationRuns() []string {
	if chaos() {
		return []string{"Talos is upgraded while the controller is killed at every write of the journal"}
	}
	return nil
}

// TestOperationKilled upgrades Talos on three control planes and two workers, while the controller is killed after every write of
// the journal, the claim and the settled versions. Each machine is installed once and booted once, and quorum is never at stake.
func TestOperationKilled(t *testing.T) {
	for _, name := range operationRuns() {
		t.Run(name, upgradeKilled)
	}
}

// cluster5 brings three control planes and two workers to Ready, in calm.
func cluster5(t *testing.T, c *crashes) {
	t.Helper()
	t.Setenv(folderEnv, t.TempDir())
	t.Setenv(calmEnv, "1")
	c.begin, c.strikes, c.noted = time.Now(), newStrikes(t), map[string][]time.Time{}
	c.start(t)
	c.approve(t, c.found(t))
	c.ready(t, len(joining)+1)
}

func upgradeKilled(t *testing.T) {
	c := &crashes{}
	cluster5(t, c)
	since := time.Now()
	var names []string
	for _, m := range c.machines(t) {
		names = append(names, m.Name)
		c.do(t, "slow-install", m.Name, installFor.String())
	}
	if err := os.WriteFile(at(operationFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// From its next start on the controller dies.
	if err := syscall.Kill(c.stack.Controllers()[0].PID(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	operation := &v1alpha1.TalosOperation{ObjectMeta: metav1.ObjectMeta{Name: "upgrade-all"}}
	operation.Spec.ClusterRef.Name, operation.Spec.TalosUpgrade = localstack.ClusterName, &v1alpha1.TalosUpgrade{Version: upgradedTo}
	operation.Spec.Machines = &v1alpha1.OperationMachines{Names: names}
	if _, err := c.ichor.IchorV1alpha1().TalosOperations().Create(t.Context(), operation, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, upgradeFor, func() error { return c.ended(t, operation.Name) })
	c.ready(t, len(names))
	c.settle(t)
	c.ready(t, len(names))
	kills := c.kills(t, asController)
	t.Logf("%5.1fs the controller was killed at %d writes:\n%s", time.Since(c.begin).Seconds(), len(kills), strings.Join(kills, "\n"))
	c.tellSteps(t, kills)
	c.expectUpgraded(t, since)
	c.judge(t, since, nil, nil)
}

// ended tells why an operation has not ended well yet. One that stopped never will.
func (c *crashes) ended(t *testing.T, name string) error {
	t.Helper()
	now, err := c.ichor.IchorV1alpha1().TalosOperations().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch status := now.Status; status.Phase {
	case v1alpha1.OperationSucceeded:
		return nil
	case v1alpha1.OperationPaused, v1alpha1.OperationFailed, v1alpha1.OperationCancelled:
		t.Fatalf("operation %s is %s: %s", name, status.Phase, status.Message)
		return nil
	default:
		return fmt.Errorf("operation %s is %s: %s", name, status.Phase, status.Message)
	}
}

// stepsOf counts kills by what was written: the step of the machine that is worked on, or the object.
func stepsOf(kills []string) map[string]int {
	count := map[string]int{}
	for _, kill := range kills {
		// answered VERB RESOURCE NAME PHASE at MACHINE MACHINE=STEP/STATE+…
		words := strings.Fields(kill)
		at := slices.Index(words, "at")
		if len(words) < 3 || words[2] != "talosoperations/status" || at < 0 {
			count[strings.Join(words[1:min(3, len(words))], " ")]++
			continue
		}
		step := "between machines"
		for _, word := range words[min(at+2, len(words)):] {
			if name, rest, ok := strings.Cut(word, "="); ok && strings.HasPrefix(words[at+1], name) {
				step, _, _ = strings.Cut(rest, "+")
			}
		}
		count[step]++
	}
	return count
}

func TestKillsAreCountedByTheStepTheyWereAt(t *testing.T) {
	t.Parallel()
	got := stepsOf([]string{
		"answered update talosclusters/status local claim of upgrade-all",
		"answered update talosoperations/status upgrade-all Pending at",
		"answered update talosoperations/status upgrade-all Running at 1a370885-ca9b 1a370885=Install/Acted+boot b-1+cordoned acfc572d=PullImage/Verified",
		"answered update talosoperations/status upgrade-all Running at acfc572d-c29c 1a370885=Uncordon/Verified+boot b-1+done acfc572d=Gates/Intended",
		"answered update talosmachines/status 1a370885-ca9b settled at v1.13.9 376567988ad3",
	})
	want := map[string]int{"update talosclusters/status": 1, "between machines": 1, "Install/Acted": 1, "Gates/Intended": 1, "update talosmachines/status": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// tellSteps says at which steps the controller was killed how often, and holds that against those that there are.
func (c *crashes) tellSteps(t *testing.T, kills []string) {
	t.Helper()
	count := stepsOf(kills)
	t.Logf("kills by step: %v", count)
	for _, must := range []string{"Gates", "Snapshot", "Cordon", "Drain", "PullImage", "HandOver", "Install", "Reboot", "Verify", "Uncordon"} {
		verified := false
		for step := range count {
			verified = verified || step == must+"/Verified"
		}
		if !verified {
			t.Errorf("the controller was never killed when step %s was verified", must)
		}
	}
	for _, must := range []string{"update talosclusters/status", "update talosmachines/status"} {
		if count[must] == 0 {
			t.Errorf("the controller was never killed at %s", must)
		}
	}
}

// expectUpgraded holds each machine's log and object against one upgrade.
func (c *crashes) expectUpgraded(t *testing.T, since time.Time) {
	t.Helper()
	for _, m := range c.machines(t) {
		count := map[string]int{}
		for _, deed := range c.deeds(t, m.Name) {
			if deed.Time.After(since) {
				count[deed.What]++
			}
		}
		if told := count[node.DeedToldReboot] + count[node.DeedToldUpgrade]; count[node.DeedInstaller] != 1 || told != 1 || count[node.DeedBoot] != 1 {
			t.Errorf("machine %s was installed %d times, told to go down %d times, and booted %d times; want each once", m.Spec.Hostname, count[node.DeedInstaller], told, count[node.DeedBoot])
		}
		if settled := m.Status.SettledVersions; m.Status.TalosVersion != upgradedTo || settled == nil || settled.Talos != upgradedTo {
			t.Errorf("machine %s runs %s and is to have %+v", m.Spec.Hostname, m.Status.TalosVersion, settled)
		}
	}
}

// do has something done to a machine, as somebody who stands before it.
func (c *crashes) do(t *testing.T, verb, machine string, args ...string) json.RawMessage {
	t.Helper()
	data, err := c.stack.Machines().Do(t.Context(), verb, c.hardware(t, machine).Name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v", verb, machine, err)
	}
	return data
}

// deeds is what a machine did, by its own log.
func (c *crashes) deeds(t *testing.T, machine string) []node.Deed {
	t.Helper()
	var list []node.Deed
	if err := json.Unmarshal(c.do(t, "deeds", machine), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// judge gathers what was left and what was written down since a time, and has it judged.
func (c *crashes) judge(t *testing.T, since time.Time, s *soak, grown *[2]operations.Process) *operations.Verdict {
	t.Helper()
	h := &operations.History{Left: c.left(t)}
	if s != nil {
		h.Faults = s.faults
		for _, fault := range s.faults {
			if fault.What == "etcd paused" { // who is paused writes nothing down
				h.Missed = append(h.Missed, fault.Span)
			}
		}
	}
	if grown != nil {
		h.Left.Before, h.Left.After = grown[0], grown[1]
		log, err := os.ReadFile(c.stack.Dir().Log("ichor-controller-2"))
		if err != nil {
			t.Fatal(err)
		}
		h.Left.LostLead = strings.Contains(string(log), "lost the lead: the Lease could not be renewed")
	}
	for _, m := range c.machines(t) {
		if m.Spec.Role == v1alpha1.RoleControlPlane {
			h.ControlPlanes = append(h.ControlPlanes, m.Name)
			log, err := os.ReadFile(c.etcdLog(t, m.Name))
			if err != nil {
				t.Fatal(err)
			}
			h.Missed = append(h.Missed, operations.Missed(m.Name, log, c.noted[m.Name])...)
		}
		for _, deed := range c.deeds(t, m.Name) {
			if deed.Time.After(since) && deed.What != node.DeedPull {
				h.Acts = append(h.Acts, operations.Act{At: deed.Time, Machine: m.Name, What: deed.What})
			}
		}
	}
	slices.SortFunc(h.Acts, func(a, b operations.Act) int { return a.At.Compare(b.At) })
	list, err := c.ichor.IchorV1alpha1().TalosOperations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		operation := c.history(&list.Items[i])
		if s != nil {
			operation.Pauses = s.pauses[operation.Name]
		}
		h.Operations = append(h.Operations, operation)
	}
	v := operations.Judge(h)
	for _, violation := range v.Violations {
		t.Error(violation)
	}
	t.Logf("judged: %d operations, %d acts of machines, told to go down %d times, %d times while another had just gone", len(h.Operations), len(h.Acts), v.Told, v.Unknowable)
	return v
}

// etcdLog is the log of a machine's etcd.
func (c *crashes) etcdLog(t *testing.T, machine string) string {
	t.Helper()
	name := c.hardware(t, machine).Name
	return filepath.Join(c.dir, "machines", name, "logs", name+"-etcd.log")
}

// history is what an operation says of itself.
func (c *crashes) history(now *v1alpha1.TalosOperation) operations.Operation {
	control := now.Spec.Control
	out := operations.Operation{
		Name: now.Name, Kind: kindOf(now), Phase: string(now.Status.Phase), Message: now.Status.Message,
		CancelAsked: control != nil && control.CancelRequested,
	}
	allowed := 1
	if control != nil {
		allowed += int(control.ResumeRequests)
	}
	for _, m := range now.Status.Machines {
		if m.StartedAt == nil {
			continue
		}
		work := operations.Work{Span: operations.Span{Machine: m.Name, From: m.StartedAt.Time}, Allowed: allowed}
		// The journal has whole seconds.
		switch {
		case m.FinishedAt != nil:
			work.To = m.FinishedAt.Add(time.Second)
		case now.Status.FinishedAt != nil:
			work.To = now.Status.FinishedAt.Add(time.Second)
		}
		out.Work = append(out.Work, work)
	}
	return out
}

// kindOf names what an operation does.
func kindOf(operation *v1alpha1.TalosOperation) string {
	switch spec := operation.Spec; {
	case spec.Reboot != nil:
		return "reboot"
	case spec.ConfigRollout != nil:
		return "configRollout"
	case spec.TalosUpgrade != nil:
		return "talosUpgrade"
	case spec.KubernetesUpgrade != nil:
		return "kubernetesUpgrade"
	default:
		return "shutdown"
	}
}

// left is what operations left behind.
func (c *crashes) left(t *testing.T) operations.Left {
	t.Helper()
	var left operations.Left
	eventually(t, time.Minute, func() error { // a claim is given back, and a Node uncordoned, a moment after the end
		left = operations.Left{}
		if holder := c.cluster(t).Status.ActiveOperation; holder != nil {
			left.Claims = append(left.Claims, holder.Name)
		}
		nodes, err := c.kubernetes.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range nodes.Items {
			if found := &nodes.Items[i]; found.Spec.Unschedulable || found.Annotations[v1alpha1.CordonedByAnnotation] != "" {
				left.Cordons = append(left.Cordons, found.Name)
			}
		}
		if len(left.Claims)+len(left.Cordons) > 0 {
			return fmt.Errorf("left are %+v", left)
		}
		return nil
	})
	jobs, err := c.kubernetes.BatchV1().Jobs(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs.Items {
		left.Jobs = append(left.Jobs, jobs.Items[i].Name)
	}
	err = filepath.WalkDir(c.stack.Dir().Snapshots(), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasSuffix(path, ".db.age") {
			left.Plain = append(left.Plain, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}
