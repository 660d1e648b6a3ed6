// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/controllers/operation/operationtest"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/hollow/fleet"
	"maesh.dev/ichor/test/localstack"
)

const (
	// machines is how many the stories below use up, and one control plane.
	machines = 19
	// apiServers is how many ichor-apiservers the parallel approvals go through.
	apiServers = 3
	// startFor and stopFor bound the start and the end of the stack.
	startFor = 3 * time.Minute
	stopFor  = time.Minute
)

// suite is one stack and the clients of its people.
type suite struct {
	stack *localstack.Stack
	// admin is of group system:masters; operator and viewer have Ichor's roles.
	admin, operator, viewer *versioned.Clientset
	kubernetes              *kubernetes.Clientset
	// used counts the machines of the fleet that stories took.
	used int
	// journals are those of all operations; what was done is held against their plans after each story.
	journals *operationtest.Deeds
}

// stories run in this order: later ones count control planes that earlier ones approved.
var stories = []struct {
	name string
	run  func(*testing.T, *suite)
}{
	{"what make run tells a newcomer to type works as it is printed", newcomer},
	{"people have the rights of their roles and no more", roles},
	{"what a machine logs is read through the Kubernetes API by whom it is allowed to", machineLogs},
	{"a gate's Job goes with its operation", collectedJob},
	{"a scanned network is told apart, and scanned again nothing changes", scannedNetwork},
	{"kubectl works as with a CRD", kubectlSemantics},
	{"certificates and their authority are replaced under load without a failed request", rotatedCertificates},
	{"two control planes and two workers of other versions join though the controller is killed", moreNodes},
	{"machines that booted other versions than they get join, and those that are there stay as they are", otherMedia},
	{"patches reach every machine, what somebody changed is seen and mended, and what needs a reboot waits", patchedMachines},
	{"kubelets get serving certificates for what is their own, and nobody gets one for anything else", kubeletCertificates},
	{"what waits for a reboot is rolled out machine by machine, and taken back", rolledOut},
	{"control planes with several reasons to reboot at once go down one after the other", severalReasons},
	{"a worker with pods goes down once its Job, its budget and its volume let it", drainedWorker},
	{"a patch is looked at, applied and taken back from the command line", patchCommands},
	{"a machine is installed with every kind of document at once, and nothing differs", everyKind},
	{"Talos is upgraded though the controller is killed, and each machine is installed and booted once", upgradedTalos},
	{"what goes wrong with an upgrade stops it: a missing image, an old version, missing extensions; and a reboot by hand counts", wrongUpgrades},
	{"a machine that was powered off on purpose is said to be, until it is back", poweredOff},
	{"Kubernetes is upgraded component by component though the controller is killed, and no machine is rebooted", kubernetesUpgraded},
	{"two control planes with one hostname: one wins", oneHostname},
	{"parallel approvals through three API servers stop at the limit", parallelApprovals},
	{"nobody forges an approval", forgedApprovals},
	{"a mutating policy can't turn a worker into a control plane", mutatingPolicy},
	{"the audit log and the approval name the same user", auditedApproval},
	{"a wiped worker is provisioned again, with a warning", wipedWorker},
	{"a fingerprint that changed before the approval is refused", fingerprintBeforeApproval},
	{"a fingerprint that changed before the first configuration stops it until someone vouches", fingerprintBeforeApply},
	{"a rack is approved from one file, or not at all", rackFromFile},
	{"a machine of another cluster is reclaimed, and only the one that was meant", reclaimedMachine},
	{"no secret is in anything that is served, told, logged, audited or printed", noSecretAnywhere},
	{"a second stack runs beside the first, lets its cluster go with not one write to a machine, and ends without a trace", detachedStack},
	{"the API is away for a while and comes back, and nothing was done meanwhile", apiAway},
	{"uninstalled in the right order no namespace is stuck and installed again everything is there", uninstalledAPI},
	{"machines are removed: drained first, given up with consent, and a control plane leaves etcd", removedMachines},
	{"with etcd's quorum lost, a person sees what to do over Talos alone, and has a snapshot", lostQuorum},
}

func TestStack(t *testing.T) {
	s := startStack(t)
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			story.run(t, s)
			s.planEqualsDeed(t)
		})
	}
}

// programs is the folder that `make build` fills.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin")) // a test runs in its own folder
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func startStack(t *testing.T) *suite {
	t.Helper()
	dir, err := os.MkdirTemp("", "ichor-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound(startFor))
	defer cancel()
	begin := time.Now()
	stack, err := localstack.Start(ctx, localstack.Options{
		StateDir: dir, BinDir: programs(t), FleetFile: mixedFleet(t, t.TempDir()), APIServers: apiServers,
		// Several stories wait for a scan.
		Interval: 10 * time.Second,
		// A rotation of certificates waits for it twice.
		ControllerArgs: []string{"--serving-certificate-propagation=" + propagation.String()},
		Progress:       func(message string) { t.Logf("%5.1fs %s", time.Since(begin).Seconds(), message) },
	})
	if err != nil {
		t.Fatalf("start the stack: %v\nits folder is kept: %s", err, dir)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound(stopFor))
		defer cancel()
		if err := stack.Stop(ctx); err != nil {
			t.Errorf("end the stack: %v", err)
		}
		if t.Failed() {
			t.Logf("the stack's folder with its logs is kept: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the stack's folder: %v", err)
		}
	})
	s := &suite{stack: stack, admin: client(t, stack.Admin()), kubernetes: kubernetes.NewForConfigOrDie(stack.Admin()), used: 2}
	s.operator, s.viewer = client(t, person(t, stack, "operator")), client(t, person(t, stack, "viewer"))
	s.followDeeds(t)
	return s
}

func client(t *testing.T, config *rest.Config) *versioned.Clientset {
	t.Helper()
	// Stories that race must not be slowed down by the client.
	config.QPS, config.Burst = 200, 400
	c, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func person(t *testing.T, stack *localstack.Stack, name string) *rest.Config {
	t.Helper()
	config, err := stack.As(name)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// take returns the objects of machines that no story used yet; machine 0 is the first control plane, machine 1 the
// newcomer's.
func (s *suite) take(t *testing.T, count int) []*v1alpha1.TalosMachine {
	t.Helper()
	fleet := s.stack.Fleet().Machines[:machines]
	if s.used+count > len(fleet) {
		t.Fatalf("the fleet of %d machines is used up; raise the constant", len(fleet))
	}
	var out []*v1alpha1.TalosMachine
	for i := s.used; i < s.used+count; i++ {
		out = append(out, s.at(t, fleet[i].Addr()))
	}
	s.used += count
	return out
}

// at is the object of the machine at an address.
func (s *suite) at(t *testing.T, address netip.Addr) *v1alpha1.TalosMachine {
	t.Helper()
	list, err := s.admin.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if slices.Contains(list.Items[i].Status.Addresses, address.String()) {
			return &list.Items[i]
		}
	}
	t.Fatalf("no TalosMachine has the address %s", address)
	return nil
}

// hardware is the fleet's entry of a machine.
func (s *suite) hardware(t *testing.T, m *v1alpha1.TalosMachine) *fleet.Machine {
	t.Helper()
	all := s.stack.Fleet().Machines
	for i := range all {
		if all[i].UUID == m.Name {
			return &all[i]
		}
	}
	t.Fatalf("the fleet has no machine with UUID %s", m.Name)
	return nil
}

// get reads a machine as it is now.
func (s *suite) get(t *testing.T, name string) *v1alpha1.TalosMachine {
	t.Helper()
	m, err := s.admin.IchorV1alpha1().TalosMachines().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *suite) cluster(t *testing.T) *v1alpha1.TalosCluster {
	t.Helper()
	c, err := s.admin.IchorV1alpha1().TalosClusters().Get(t.Context(), localstack.ClusterName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// condition returns a condition; its zero value if there is none.
func condition(conditions []metav1.Condition, kind string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

// waitReady waits until machines are Ready.
func (s *suite) waitReady(t *testing.T, patience time.Duration, names ...string) {
	t.Helper()
	eventually(t, patience, func() error {
		for _, name := range names {
			m := s.get(t, name)
			if ready := condition(m.Status.Conditions, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
				return fmt.Errorf("machine %s (%s): phase %s, stage %s, conditions %+v", name, m.Spec.Hostname, m.Status.Phase, m.Status.Stage, m.Status.Conditions)
			}
		}
		return nil
	})
}
