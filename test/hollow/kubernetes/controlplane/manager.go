// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"

	"maesh.dev/ichor/test/hollow/kubernetes/flags"
)

// ManagerPort and SchedulerPort are where the two serve their health and metrics.
const (
	ManagerPort   = 10257
	SchedulerPort = 10259
)

// neededControllers are the controllers that nodes, certificates, namespaces and service accounts need. Talos runs all;
// every controller less is memory and processor time for the rest.
var neededControllers = []string{
	"certificatesigningrequest-approving-controller",
	"certificatesigningrequest-cleaner-controller",
	"certificatesigningrequest-signing-controller",
	"clusterrole-aggregation-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"token-cleaner-controller",
}

// PodControllers are those that make pods, count and delete them: where kubelets run pods, they are started, too.
var PodControllers = []string{
	"cronjob-controller",
	"daemonset-controller",
	"deployment-controller",
	"disruption-controller",
	"job-controller",
	"pod-garbage-collector-controller",
	"replicaset-controller",
	"statefulset-controller",
}

// managerPolicies are Talos' rules for extra arguments of the controller manager.
var managerPolicies = map[string]flags.Policy{
	"service-cluster-ip-range": flags.Extend,
	"controllers":              flags.Extend,

	"cluster-signing-cert-file":        flags.Refuse,
	"cluster-signing-key-file":         flags.Refuse,
	"authentication-kubeconfig":        flags.Refuse,
	"authorization-kubeconfig":         flags.Refuse,
	"root-ca-file":                     flags.Refuse,
	"service-account-private-key-file": flags.Refuse,
}

// Manager renders the controller manager's command line.
func Manager(cluster config.ClusterConfig, layout Layout) (Component, error) {
	manager := cluster.ControllerManager()
	keys := layout.Files
	component := Component{Name: ManagerName, Image: manager.Image(), Env: environment(manager.Env())}

	set := flags.Of(map[string]string{
		"allocate-node-cidrs":              "true",
		"authentication-kubeconfig":        keys.ManagerKubeconfig,
		"authorization-kubeconfig":         keys.ManagerKubeconfig,
		"bind-address":                     layout.Node.Address.String(),
		"cluster-cidr":                     strings.Join(cluster.Network().PodCIDRs(), ","),
		"cluster-signing-cert-file":        keys.IssuingCert,
		"cluster-signing-key-file":         keys.IssuingKey,
		"configure-cloud-routes":           "false",
		"controllers":                      strings.Join(slices.Concat(neededControllers, layout.Controllers), ","),
		"kubeconfig":                       keys.ManagerKubeconfig,
		"leader-elect":                     "true",
		"profiling":                        "false",
		"root-ca-file":                     keys.CA,
		"secure-port":                      strconv.Itoa(ManagerPort),
		"service-account-private-key-file": keys.ServiceAccountKey,
		"service-cluster-ip-range":         strings.Join(cluster.Network().ServiceCIDRs(), ","),
		"tls-cert-file":                    keys.ManagerCert,
		"tls-min-version":                  "VersionTLS13",
		"tls-private-key-file":             keys.ManagerKey,
		"use-service-account-credentials":  "true",
		// A fleet of a thousand nodes asks for a thousand certificates at once.
		"kube-api-qps":   "100",
		"kube-api-burst": "200",
	})

	if err := set.Merge(manager.ExtraArgs(), managerPolicies); err != nil {
		return component, fmt.Errorf("flags of %s: %w", component.Name, err)
	}

	set.BindTo(layout.Node.Address)

	component.Args = set.Args()

	return component, component.fingerprint(cluster, layout)
}

// Scheduler renders the scheduler's command line. Its configuration file is left out: a scheduler that has one takes
// neither the kubeconfig nor the leader election from its flags.
func Scheduler(cluster config.ClusterConfig, layout Layout) (Component, error) {
	scheduler := cluster.Scheduler()
	component := Component{Name: SchedulerName, Image: scheduler.Image(), Env: environment(scheduler.Env())}

	keys := layout.Files
	set := flags.Of(map[string]string{
		"authentication-kubeconfig":              keys.SchedulerKubeconfig,
		"authentication-tolerate-lookup-failure": "false",
		"authorization-kubeconfig":               keys.SchedulerKubeconfig,
		// Talos binds it to 127.0.0.1, which is every machine's here.
		"bind-address":         layout.Node.Address.String(),
		"kubeconfig":           keys.SchedulerKubeconfig,
		"leader-elect":         "true",
		"profiling":            "false",
		"secure-port":          strconv.Itoa(SchedulerPort),
		"tls-cert-file":        keys.SchedulerCert,
		"tls-min-version":      "VersionTLS13",
		"tls-private-key-file": keys.SchedulerKey,
	})

	policies := map[string]flags.Policy{
		"kubeconfig": flags.Refuse, "authentication-kubeconfig": flags.Refuse,
		"authorization-kubeconfig": flags.Refuse, "config": flags.Refuse,
	}

	if err := set.Merge(scheduler.ExtraArgs(), policies); err != nil {
		return component, fmt.Errorf("flags of %s: %w", component.Name, err)
	}

	set.BindTo(layout.Node.Address)

	component.Args = set.Args()

	return component, component.fingerprint(cluster, layout)
}
