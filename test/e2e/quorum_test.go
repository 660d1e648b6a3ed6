// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/hollow/fleet"
)

// directReport is what this story reads of `ichor --direct status -o json`.
type directReport struct {
	Nodes []struct {
		Address, Hostname, State, Role string
	}
	Etcd struct {
		Quorum, Source, MostAdvanced        string
		Voters, Answering, Needed, Learners int
		Members                             []struct {
			Hostname string
			Answers  bool
		}
	}
	Kubernetes []struct {
		URL            string
		Answers, Ready bool
	}
	Lost []string
	Next []struct{ What, Command string }
}

// lostQuorum takes the power of so many control planes that etcd has no quorum. Over Talos alone a person sees what is
// lost and what is the next safe move, follows it, and has a snapshot with everything in it. With the power back, the
// cluster is whole again.
func lostQuorum(t *testing.T, s *suite) {
	bundle := s.escrowedBundle(t)
	planes := s.controlPlanes(t)
	survivor, victims := planes[0], planes[1:]
	victims = victims[:len(planes)-(len(planes)/2+1)+1] // one more than etcd tolerates
	whole := s.lookDirectly(t, bundle, survivor)
	if whole.Etcd.Quorum != "Held" || whole.Etcd.Source != "etcd" || whole.Etcd.Voters != len(planes) || whole.Etcd.Answering != len(planes) || !strings.HasPrefix(strings.Join(whole.Lost, " "), "Nothing") {
		t.Errorf("before anything is lost: %+v", whole)
	}
	objects, err := s.admin.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, victim := range victims {
		s.power(t, "off", victim)
	}
	t.Cleanup(func() { // of nothing, if the story went to its end
		for _, victim := range victims {
			s.powerOn(t, victim)
		}
	})
	eventually(t, time.Minute, func() error {
		if r := s.run(t, s.stack.Dir().Kubeconfig(), "kubectl", "get", "--raw", "/readyz", "--request-timeout=5s"); r.status == 0 {
			return fmt.Errorf("the Kubernetes API is ready without etcd: %s", r.out)
		}
		return nil
	})

	report := s.expectLost(t, bundle, survivor, victims, len(planes))
	s.expectLostInWords(t, bundle, survivor, victims, len(planes))
	path, said := s.followFirstStep(t, report)
	expectSnapshot(t, path, said, objects.Items)

	for _, victim := range victims {
		s.powerOn(t, victim)
	}
	s.expectWhole(t, bundle, survivor, len(planes))
}

// escrowedBundle writes the cluster's secrets bundle to a file, as a person did before the bad day.
func (s *suite) escrowedBundle(t *testing.T) string {
	t.Helper()
	ref := s.cluster(t).Spec.SecretsRef
	secret, err := s.kubernetes.CoreV1().Secrets(ref.Namespace).Get(t.Context(), ref.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(path, secret.Data[v1alpha1.SecretsBundleKey], 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// controlPlanes are the hardware of etcd's voters, the first control plane first; there is no learner.
func (s *suite) controlPlanes(t *testing.T) []*fleet.Machine {
	t.Helper()
	var planes []*fleet.Machine
	eventually(t, 4*time.Minute, func() error {
		members := s.cluster(t).Status.EtcdMembers
		planes = []*fleet.Machine{s.stack.First()}
		for _, member := range members {
			if member.Learner || member.Machine == "" {
				return fmt.Errorf("etcd members %+v", members)
			}
			if machine := s.hardware(t, s.get(t, member.Machine)); machine.Name != s.stack.First().Name {
				planes = append(planes, machine)
			}
		}
		if len(planes) < 3 || len(planes) != len(members) {
			return fmt.Errorf("etcd members %+v, want three at least", members)
		}
		return nil
	})
	for _, plane := range planes {
		s.waitReady(t, 4*time.Minute, s.at(t, plane.Addr()).Name)
	}
	return planes
}

func (s *suite) power(t *testing.T, which string, machine *fleet.Machine) {
	t.Helper()
	if _, err := s.stack.Machines().Do(t.Context(), "power-"+which, machine.Name); err != nil {
		t.Fatal(err)
	}
}

// powerOn switches a machine on that may be on already, also when the story is over.
func (s *suite) powerOn(t *testing.T, machine *fleet.Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound(time.Minute))
	defer cancel()
	if status, err := s.stack.Machines().Status(ctx, machine.Name); err == nil && status.Powered {
		return
	}
	if _, err := s.stack.Machines().Do(ctx, "power-on", machine.Name); err != nil {
		t.Error(err)
	}
}

func (s *suite) direct(t *testing.T, bundle string, node *fleet.Machine, args ...string) result {
	t.Helper()
	args = append([]string{"--direct", "--bundle", bundle, "--nodes", node.Addr().String()}, args...)
	return s.run(t, s.stack.Dir().Kubeconfig(), "ichor", args...)
}

func (s *suite) lookDirectly(t *testing.T, bundle string, node *fleet.Machine) directReport {
	t.Helper()
	r := s.direct(t, bundle, node, "status", "-o", "json")
	var report directReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.status != 0 {
		t.Fatalf("ichor --direct status: status %d, %v\n%s%s", r.status, err, r.out, r.err)
	}
	return report
}

// expectLost waits until etcd has noticed, and looks at the numbers: only the survivor is named, discovery knows the
// others.
func (s *suite) expectLost(t *testing.T, bundle string, survivor *fleet.Machine, victims []*fleet.Machine, voters int) directReport {
	t.Helper()
	var report directReport
	eventually(t, 2*time.Minute, func() error {
		if report = s.lookDirectly(t, bundle, survivor); report.Etcd.Quorum != "Lost" {
			return fmt.Errorf("etcd %+v", report.Etcd)
		}
		return nil
	})
	etcd := report.Etcd
	if etcd.Source != "discovery" || etcd.Voters != voters || etcd.Answering != voters-len(victims) || etcd.Needed != voters/2+1 || etcd.MostAdvanced == "" {
		t.Errorf("etcd %+v, want %d voters, %d of them silent", etcd, voters, len(victims))
	}
	states := map[string]string{}
	for _, node := range report.Nodes {
		states[node.Address] = node.State + " " + node.Role
	}
	for _, victim := range victims {
		if got := states[victim.Addr().String()]; got != "Silent controlplane" {
			t.Errorf("the machine without power at %s is %q: %+v", victim.Addr(), got, report.Nodes)
		}
	}
	if got := states[survivor.Addr().String()]; got != "Answers controlplane" {
		t.Errorf("the survivor at %s is %q", survivor.Addr(), got)
	}
	for _, api := range report.Kubernetes {
		if api.Ready {
			t.Errorf("the Kubernetes API at %s is said to be ready", api.URL)
		}
	}
	return report
}

// expectLostInWords looks at what a person reads.
func (s *suite) expectLostInWords(t *testing.T, bundle string, survivor *fleet.Machine, victims []*fleet.Machine, voters int) {
	t.Helper()
	arithmetic := fmt.Sprintf("%d of %d voters answer, a quorum takes %d", voters-len(victims), voters, voters/2+1)
	status := s.direct(t, bundle, survivor, "status")
	for _, want := range []string{
		"quorum lost: " + arithmetic, "What is lost", "etcd has no quorum (" + arithmetic + ")", "Workloads keep running",
		"Next safe move", "1. Take a snapshot now", "with the disks as they are", victims[0].Addr().String(), "never bootstrap",
	} {
		if !strings.Contains(status.out, want) {
			t.Errorf("ichor --direct status doesn't say %q:\n%s%s", want, status.out, status.err)
		}
	}
	if strings.Contains(status.out, "recover-from") {
		t.Errorf("it proposes to recover although only the power is out:\n%s", status.out)
	}
	etcd := s.direct(t, bundle, survivor, "etcd")
	if etcd.status != 0 || !strings.Contains(etcd.out, "quorum lost: "+arithmetic) || strings.Count(etcd.out, "no leader") != voters-len(victims) || strings.Count(etcd.out, "connection refused") != len(victims) {
		t.Errorf("ichor --direct etcd: status %d\n%s%s", etcd.status, etcd.out, etcd.err)
	}
}

// followFirstStep runs what is proposed first, as it is printed, and returns the snapshot that it makes and what it says.
func (s *suite) followFirstStep(t *testing.T, report directReport) (path, said string) {
	t.Helper()
	if len(report.Next) == 0 || !strings.HasSuffix(report.Next[0].Command, " snapshot") {
		t.Fatalf("the first step takes no snapshot: %+v", report.Next)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound(commandFor))
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", report.Next[0].Command)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(s.stack.Program("ichor"))+":"+os.Getenv("PATH"), "KUBECONFIG="+s.stack.Dir().Kubeconfig())
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "etcd had no quorum") {
		t.Fatalf("%s: %v\n%s", report.Next[0].Command, err, output)
	}
	found, err := filepath.Glob(filepath.Join(command.Dir, "etcd-*.db"))
	if err != nil || len(found) != 1 {
		t.Fatalf("it left %v, %v, want one snapshot", found, err)
	}
	if info, err := os.Stat(found[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot: %v, %v", info, err)
	}
	return found[0], string(output)
}

// expectSnapshot opens a snapshot with etcd's own tool, which says the same of it, and finds every machine in it.
func expectSnapshot(t *testing.T, path, said string, machines []v1alpha1.TalosMachine) {
	t.Helper()
	status, err := snapshot.NewV3(zap.NewNop()).Status(path)
	if err != nil || status.Revision == 0 || status.TotalKey == 0 {
		t.Fatalf("etcd's own look at the snapshot: %+v, %v", status, err)
	}
	if want := fmt.Sprintf("revision %d, %d keys, hash %x\n", status.Revision, status.TotalKey, status.Hash); !strings.Contains(said, want) {
		t.Errorf("it says %q of the snapshot, etcd says %q", said, want)
	}
	keys := keysOf(t, path)
	for i := range machines {
		if name := "/talosmachines/" + machines[i].Name; !slices.ContainsFunc(keys, func(key string) bool { return strings.HasSuffix(key, name) }) {
			t.Errorf("the snapshot lacks %s", name)
		}
	}
}

func keysOf(t *testing.T, path string) []string {
	t.Helper()
	database, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close() //nolint:errcheck // read only
	var keys []string
	err = database.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(_, value []byte) error {
			var pair mvccpb.KeyValue
			if err := proto.Unmarshal(value, &pair); err != nil {
				return err
			}
			keys = append(keys, string(pair.GetKey()))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// expectWhole waits until nothing is lost any more, and writes something.
func (s *suite) expectWhole(t *testing.T, bundle string, survivor *fleet.Machine, voters int) {
	t.Helper()
	eventually(t, 4*time.Minute, func() error {
		report := s.lookDirectly(t, bundle, survivor)
		if report.Etcd.Quorum != "Held" || report.Etcd.Voters != voters || report.Etcd.Answering != voters || !strings.HasPrefix(strings.Join(report.Lost, " "), "Nothing") {
			return fmt.Errorf("%+v", report)
		}
		return nil
	})
	eventually(t, 2*time.Minute, func() error {
		_, err := s.kubernetes.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "after-the-bad-day-"}}, metav1.CreateOptions{})
		return err
	})
	eventually(t, 4*time.Minute, func() error {
		list, err := s.viewer.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.role=controlplane"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			m := &list.Items[i]
			if m.Spec.ApprovalState == v1alpha1.ApprovalApproved && condition(m.Status.Conditions, v1alpha1.ConditionJoined).Status == metav1.ConditionTrue &&
				condition(m.Status.Conditions, v1alpha1.ConditionReady).Status != metav1.ConditionTrue {
				return fmt.Errorf("control plane %s: %+v", m.Spec.Hostname, m.Status.Conditions)
			}
		}
		return nil
	})
}
