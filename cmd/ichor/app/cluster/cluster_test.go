// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/apitest"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func places(cluster *v1alpha1.TalosCluster) []string {
	var found []string
	for _, subnet := range cluster.Spec.Discovery.Subnets {
		found = append(found, subnet.CIDR)
	}
	return append(found, cluster.Spec.Discovery.Addresses...)
}

func TestDiscoveryAddAndRemove(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		code int
		says []string
		want []string
	}{
		{"a subnet and an address are added", []string{"add", "10.1.0.0/16", "10.0.9.7"}, 0, []string{"10.1.0.0/16 added", "10.0.9.7 added"}, []string{"10.0.0.0/24", "10.1.0.0/16", "10.0.9.7"}},
		{"what is there is left alone", []string{"add", "10.0.0.0/24"}, 0, []string{"10.0.0.0/24 is looked at already, unchanged"}, []string{"10.0.0.0/24"}},
		{"the same twice is added once", []string{"add", "10.0.9.7", "10.0.9.7"}, 0, nil, []string{"10.0.0.0/24", "10.0.9.7"}},
		{"an address inside a subnet is refused with what may be meant", []string{"add", "10.0.1.5/24"}, cli.ExitUsage, []string{"10.0.1.0/24 for the whole subnet, or 10.0.1.5 for the one address"}, []string{"10.0.0.0/24"}},
		{"what is neither is refused", []string{"add", "rack1"}, cli.ExitUsage, []string{`"rack1" is neither a subnet`}, []string{"10.0.0.0/24"}},
		{"nothing is refused", []string{"add"}, cli.ExitUsage, []string{"needs a subnet or an address"}, []string{"10.0.0.0/24"}},
		{"a cluster that there isn't is refused", []string{"add", "10.1.0.0/16", "--cluster", "test"}, cli.ExitFailed, []string{`"test" not found`}, []string{"10.0.0.0/24"}},
		{"a dry run stores nothing", []string{"add", "10.1.0.0/16", "--dry-run=server"}, 0, []string{"10.1.0.0/16 added (server dry run)"}, []string{"10.0.0.0/24"}},
		{"a subnet is removed", []string{"remove", "10.0.0.0/24"}, 0, []string{"10.0.0.0/24 removed"}, nil},
		{"what isn't there is no fault", []string{"remove", "10.9.0.0/24"}, 0, []string{"10.9.0.0/24 isn't looked at, unchanged"}, []string{"10.0.0.0/24"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := apitest.Start(t, apitest.Fleet()...)
			result := server.Run(t, append([]string{"cluster", "discovery"}, test.args...)...)
			if result.Code != test.code {
				t.Errorf("exit status %d, want %d; standard error:\n%s", result.Code, test.code, result.Err)
			}
			for _, want := range test.says {
				if !strings.Contains(result.Err, want) {
					t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
				}
			}
			if diff := cmp.Diff(test.want, places(server.Cluster("prod"))); diff != "" {
				t.Errorf("looked at (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDiscoveryAddKeepsWhatOthersAddMeanwhile(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	var once sync.Once
	server.BeforePatch = func() {
		once.Do(func() {
			cluster := server.Cluster("prod")
			cluster.Spec.Discovery.Addresses = []string{"10.0.9.9"}
			server.Put(cluster)
		})
	}
	if result := server.Run(t, "cluster", "discovery", "add", "10.0.9.7"); result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	if diff := cmp.Diff([]string{"10.0.0.0/24", "10.0.9.9", "10.0.9.7"}, places(server.Cluster("prod"))); diff != "" {
		t.Errorf("looked at (-want +got):\n%s", diff)
	}
}

// answerScan plays the controller: it scans once a request came.
func answerScan(server *apitest.Server) {
	server.Written = func(object metav1.Object) {
		asked, ok := object.(*v1alpha1.TalosCluster)
		if !ok {
			return
		}
		cluster := server.Cluster(asked.Name)
		cluster.Status.Discovery.Phase = v1alpha1.DiscoveryScanning
		cluster.Status.Discovery.Done = 128
		server.Put(cluster)
		cluster.Status.Discovery.Phase = v1alpha1.DiscoveryIdle
		cluster.Status.Discovery.ScanRequest = asked.Spec.Discovery.ScanRequest
		server.Put(cluster)
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	answerScan(server)
	result := server.Run(t, "cluster", "discovery", "scan", "--wait")
	if result.Code != 0 {
		t.Fatalf("exit status %d; standard error:\n%s", result.Code, result.Err)
	}
	if want := "taloscluster.ichor.maesh.dev/prod scan requested\n"; result.Out != want {
		t.Errorf("standard output %q, want %q", result.Out, want)
	}
	for _, want := range []string{"scanned 256 addresses: 3 in maintenance, 2 already configured, 1 not Talos, 250 silent", "ichor machine list --field-selector spec.approvalState=pending"} {
		if !strings.Contains(result.Err, want) {
			t.Errorf("standard error doesn't say %q:\n%s", want, result.Err)
		}
	}
	if request := server.Cluster("prod").Spec.Discovery.ScanRequest; request == "" || len(request) > 64 {
		t.Errorf("the request is %q, want a text of up to 64 characters", request)
	}
	if diff := cmp.Diff([]string{"10.0.0.0/24"}, places(server.Cluster("prod"))); diff != "" {
		t.Errorf("the request changed what is looked at (-want +got):\n%s", diff)
	}
}

func TestScanWithoutWaitReturnsAtOnce(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	if result := server.Run(t, "cluster", "discovery", "scan"); result.Code != 0 || result.Err != "" {
		t.Errorf("got %+v", result)
	}
}

func TestScanIsInterrupted(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	call := apitest.Call{Context: ctx, OnErr: func(soFar string) {
		if strings.Contains(soFar, "hasn't begun") {
			cancel(cli.ErrInterrupted)
		}
	}}
	result := server.Call(t, call, "cluster", "discovery", "scan", "--wait")
	if result.Code != cli.ExitInterrupted || !strings.Contains(result.Err, "the work goes on") {
		t.Errorf("got %+v", result)
	}
}

func TestScanOfNowhereIsRefused(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	cluster := server.Cluster("prod")
	cluster.Spec.Discovery = v1alpha1.Discovery{}
	server.Put(cluster)
	result := server.Run(t, "cluster", "discovery", "scan")
	if result.Code != cli.ExitBlocked || !strings.Contains(result.Err, "ichor cluster discovery add") {
		t.Errorf("got %+v", result)
	}
}

func TestShowAndList(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t, apitest.Fleet()...)
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"cluster", "show"}, []string{"https://10.0.0.10:6443", "1 of 3 ready, 1 approved, at most 4", "1 voter, tolerates the loss of 0", "10.0.0.5  NotTalos  an SSH server", "ichor status"}},
		{[]string{"cluster", "show", "prod", "-o", "name"}, []string{"taloscluster.ichor.maesh.dev/prod\n"}},
		{[]string{"cluster", "list"}, []string{"NAME   PHASE\nprod"}},
		{[]string{"cluster", "discovery", "list", "prod"}, []string{"Subnets    10.0.0.0/24"}},
		{[]string{"cluster", "discovery", "list"}, []string{"Subnets    10.0.0.0/24", "3 in maintenance, 2 already configured"}},
		{[]string{"cluster", "discovery", "list", "-o", "jsonpath={.spec.discovery.subnets[0].cidr}"}, []string{"10.0.0.0/24"}},
	} {
		result := server.Run(t, test.args...)
		if result.Code != 0 {
			t.Errorf("%v: exit status %d; standard error:\n%s", test.args, result.Code, result.Err)
		}
		for _, want := range test.want {
			if !strings.Contains(result.Out, want) {
				t.Errorf("%v doesn't show %q:\n%s", test.args, want, result.Out)
			}
		}
	}
}
