// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/bootstrap"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack/install"
	"maesh.dev/ichor/test/localstack/people"
	"maesh.dev/ichor/test/localstack/state"
)

// Persons of every stack and their roles. The administrator is Talos' own, of group system:masters.
var persons = []struct{ name, role string }{
	{"viewer", artifacts.RoleViewer},
	{"operator", artifacts.RoleOperator},
}

const (
	// lookEvery is the time between two looks at what the controller has found.
	lookEvery = 500 * time.Millisecond
	// certificateReserve is how long a person's certificate must still be good to be kept.
	certificateReserve = 30 * 24 * time.Hour
)

// cluster is the TalosCluster of the stack.
func (s *Stack) cluster() *v1alpha1.TalosCluster {
	endpoint := s.ports.loopback.Endpoint()
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: ClusterName},
		Spec: v1alpha1.TalosClusterSpec{
			TalosVersion:      TalosVersion,
			KubernetesVersion: KubernetesVersion,
			SecretsRef:        v1alpha1.SecretReference{Namespace: artifacts.Namespace, Name: ClusterName + "-secrets"},
			ControlPlane: v1alpha1.ControlPlane{
				Count:    3,
				Endpoint: v1alpha1.Endpoint{Host: endpoint.Addr().String(), Port: int32(endpoint.Port())},
			},
			Discovery: v1alpha1.Discovery{
				Subnets:  []v1alpha1.DiscoverySubnet{{CIDR: subnet(s.fleet).String()}},
				Interval: metav1.Duration{Duration: s.options.Interval},
			},
		},
	}
}

// bootstrap makes the first node, and with it the cluster that carries Ichor.
func (s *Stack) bootstrap(ctx context.Context) error {
	disk, err := systemDisk(s.first)
	if err != nil {
		return err
	}
	s.progress("bootstrapping %s (%s) as the first control plane", s.first.Name, s.first.Addr())
	err = s.options.Bootstrap(ctx, bootstrap.Config{
		Cluster:         s.cluster(),
		KeepAuditPolicy: s.options.NoAuditLog,
		Machine: &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: ClusterName},
			Role:       v1alpha1.RoleControlPlane,
			Hostname:   "cp-1",
			Disks:      []v1alpha1.MachineDisk{{Match: disk, Role: v1alpha1.DiskSystem}},
		}},
		Address:     s.first.Addr(),
		Fingerprint: s.fingerprint,
		StateDir:    s.dir.Bootstrap(),
		Dialer:      talos.NewDialer(talos.DialOptions{}),
		Prober:      talos.NewProber(talos.ProbeOptions{}),
		Install:     s.install,
		Progress:    func(event bootstrap.Event) { s.progress("%s", event.Message) },
	})
	if err != nil {
		return fmt.Errorf("bootstrap of %s: %w", s.first.Name, err)
	}
	return nil
}

// install starts Ichor's API in a cluster that has just come up. It is called again when a bootstrap is resumed.
func (s *Stack) install(ctx context.Context, access bootstrap.Access) error {
	if s.installed {
		return nil
	}
	if err := state.Write(s.dir.Kubeconfig(), access.Kubeconfig); err != nil {
		return err
	}
	if err := state.Write(s.dir.TalosConfig(), access.TalosConfig); err != nil {
		return err
	}
	admin, err := clientcmd.RESTConfigFromKubeConfig(access.Kubeconfig)
	if err != nil {
		return fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	s.admin = admin
	if err := s.health.trust(admin); err != nil {
		return err
	}
	s.progress("installing Ichor's accounts and roles")
	if err := install.Accounts(ctx, admin); err != nil {
		return err
	}
	if err := s.giveTokens(ctx, access.Kubeconfig); err != nil {
		return err
	}
	s.startControllers()
	if err := s.startAPIServers(ctx, access); err != nil {
		return err
	}
	s.progress("registering the API")
	port := s.ports.api.Addr().(*net.TCPAddr).Port
	if err := install.API(ctx, admin, port); err != nil {
		return err
	}
	if err := install.WaitAvailable(ctx, admin); err != nil {
		return err
	}
	s.installed = true
	return nil
}

// giveTokens makes the kubeconfigs of Ichor's own components and keeps their tokens fresh while the stack runs.
func (s *Stack) giveTokens(ctx context.Context, kubeconfig []byte) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return fmt.Errorf("client for tokens: %w", err)
	}
	cluster, err := people.ClusterOf(ClusterName, kubeconfig)
	if err != nil {
		return err
	}
	for _, account := range []string{artifacts.APIServerName, artifacts.ControllerName} {
		renew, err := s.giveToken(ctx, client, account)
		if err != nil {
			return err
		}
		config, err := cluster.Account(account, s.tokenFile(account))
		if err != nil {
			return err
		}
		if err := state.Write(s.accountKubeconfig(account), config); err != nil {
			return err
		}
		s.group.Go(func() { s.renewTokens(client, account, renew) })
	}
	return nil
}

func (s *Stack) giveToken(ctx context.Context, client kubernetes.Interface, account string) (time.Duration, error) {
	token, renew, err := people.Token(ctx, client, artifacts.Namespace, account)
	if err != nil {
		return 0, err
	}
	return renew, state.Write(s.tokenFile(account), []byte(token))
}

// renewTokens asks for a new token at half of the old one's life, again after a minute if that fails.
func (s *Stack) renewTokens(client kubernetes.Interface, account string, after time.Duration) {
	for {
		timer := time.NewTimer(after)
		select {
		case <-s.background.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		var err error
		if after, err = s.giveToken(s.background, client, account); err != nil {
			s.logger.Warn("renew token", "account", account, "error", err)
			after = time.Minute
		}
	}
}

// admitPeople makes the kubeconfigs of the viewer and the operator.
func (s *Stack) admitPeople(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return fmt.Errorf("client for people: %w", err)
	}
	kubeconfig, err := clientcmd.LoadFromFile(s.dir.Kubeconfig())
	if err != nil {
		return fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	written, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	cluster, err := people.ClusterOf(ClusterName, written)
	if err != nil {
		return err
	}
	for _, person := range persons {
		if err := install.Bind(ctx, s.admin, person.name, person.role); err != nil {
			return err
		}
		if people.Good(s.dir.KubeconfigOf(person.name), cluster, certificateReserve) {
			continue
		}
		data, err := people.Person(ctx, client, cluster, person.name)
		if err != nil {
			return err
		}
		if err := state.Write(s.dir.KubeconfigOf(person.name), data); err != nil {
			return err
		}
	}
	return nil
}

// awaitMachines waits until the first control plane is Ready and every machine that waits for a person was found.
func (s *Stack) awaitMachines(ctx context.Context) error {
	client, err := versioned.NewForConfig(s.admin)
	if err != nil {
		return fmt.Errorf("client for machines: %w", err)
	}
	s.progress("waiting until the first control plane is Ready and the other machines are found")
	missing := "nothing was seen yet"
	err = wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		machines, err := client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
		if err != nil {
			missing = err.Error()
			return false, nil
		}
		missing = s.missing(machines.Items)
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("wait for the machines: %w; %s; the controller's log is %s", err, missing, s.dir.Log("ichor-controller-1"))
	}
	return nil
}

// missing says which machine isn't where it should be; empty if none.
func (s *Stack) missing(machines []v1alpha1.TalosMachine) string {
	for i := range s.fleet.Machines {
		m := &s.fleet.Machines[i]
		found := at(machines, m.Addr())
		switch {
		case m == s.first && (found == nil || !isTrue(found.Status.Conditions, wanted(m))):
			return fmt.Sprintf("the first control plane at %s is not %s: %s", m.Addr(), wanted(m), describe(found))
		case m != s.first && m.State == fleet.StateMaintenance && (found == nil || found.Status.Inventory == nil):
			return fmt.Sprintf("the machine at %s was not found", m.Addr())
		}
	}
	return ""
}

// wanted is the condition that a machine can reach: without a network plugin no Node gets Ready.
func wanted(m *fleet.Machine) string {
	if m.CNI == fleet.CNIAbsent {
		return v1alpha1.ConditionJoined
	}
	return v1alpha1.ConditionReady
}

// at finds the machine that was last reached at an address.
func at(machines []v1alpha1.TalosMachine, address netip.Addr) *v1alpha1.TalosMachine {
	for i := range machines {
		if slices.Contains(machines[i].Status.Addresses, address.String()) {
			return &machines[i]
		}
	}
	return nil
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == kind && c.Status == metav1.ConditionTrue
	})
}

// describe says what a machine's conditions say that aren't True.
func describe(m *v1alpha1.TalosMachine) string {
	if m == nil {
		return "there is no TalosMachine with this address"
	}
	text := fmt.Sprintf("phase %s, stage %s", m.Status.Phase, m.Status.Stage)
	for _, c := range m.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			text += fmt.Sprintf("; %s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text
}
