// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"maesh.dev/ichor/test/hollow/control"
	"maesh.dev/ichor/test/hollow/node"
	"maesh.dev/ichor/test/localstack"
	"maesh.dev/ichor/test/localstack/state"
)

// reading are the calls that change nothing on a machine.
var reading = []string{
	"State/Get", "State/List", "State/Watch", "MachineService/Version", "MachineService/SystemStat", "MachineService/Events",
	"MachineService/EtcdStatus", "MachineService/EtcdMemberList", "MachineService/EtcdAlarmList", "MachineService/Dmesg", "MachineService/Logs",
	"MachineService/List", "MachineService/Read",
}

// clusterLetGo lets the cluster of a stack go as it is, though its controller is killed meanwhile. By the machines' own counts
// they are told nothing from then on; they run, their Nodes and the Secret with the cluster's secrets stay.
func clusterLetGo(t *testing.T, s *suite, dir state.Dir) {
	t.Helper()
	kubectl := func(args ...string) string { return s.must(t, dir.Kubeconfig(), "kubectl", args...) }
	refused := s.run(t, dir.Kubeconfig(), "kubectl", "delete", "taloscluster", localstack.ClusterName, "--wait=false")
	machines := strings.Fields(kubectl("get", "talosmachines", "-o", "jsonpath={.items[*].metadata.name}"))
	if refused.status == 0 || !slices.ContainsFunc(machines, func(name string) bool { return strings.Contains(refused.err, name) }) {
		t.Errorf("a cluster with members was deleted, or they aren't named: %+v", refused)
	}
	nodes := kubectl("get", "nodes", "-o", "name")
	secret := kubectl("get", "taloscluster", localstack.ClusterName, "-o", "jsonpath=--namespace={.spec.secretsRef.namespace} secret/{.spec.secretsRef.name}")
	hollow := control.NewClient(filepath.Join(dir.Run(), "hollow.sock"))
	before := consolesOf(t, hollow)

	s.must(t, dir.Kubeconfig(), "ichor", "cluster", "remove", localstack.ClusterName, "--orphan", "--consent", localstack.ClusterName, "--wait=false")
	for _, p := range processes(t, dir) {
		if strings.HasPrefix(p.Name, "ichor-controller") {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, 2*time.Minute, func() error {
		if left := s.run(t, dir.Kubeconfig(), "kubectl", "get", "talosclusters,talosmachines", "-o", "name"); left.status != 0 || left.out != "" {
			return fmt.Errorf("left are %q %q", left.out, left.err)
		}
		return nil
	})
	for name, is := range consolesOf(t, hollow) {
		was := before[name]
		for method, calls := range is.Calls {
			reads := slices.ContainsFunc(reading, func(suffix string) bool { return strings.HasSuffix(method, suffix) })
			if told := calls.Count - was.Calls[method].Count; told > 0 && !reads {
				t.Errorf("machine %s was called %s %d times after its cluster was let go", name, method, told)
			}
		}
		if is.BootID != was.BootID || is.Stage != was.Stage || is.Mode != was.Mode || is.Applies != was.Applies {
			t.Errorf("machine %s was %+v, and is %+v", name, was, is)
		}
	}
	if now := kubectl("get", "nodes", "-o", "name"); now != nodes {
		t.Errorf("the Nodes were %q, and are %q", nodes, now)
	}
	kubectl(append([]string{"get"}, strings.Fields(secret)...)...)
}

// consolesOf are the machines of a stack, by name.
func consolesOf(t *testing.T, hollow *control.Client) map[string]node.Status {
	t.Helper()
	all, err := hollow.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]node.Status{}
	for _, one := range all {
		out[one.Name] = one
	}
	return out
}
