// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

func odd(words string) *host { return &host{class: v1alpha1.HostNotTalos, words: words} }

func TestTheStatusSaysWhatWasMet(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.put("10.0.0.9", odd("an SSH server"))
	w.put("10.0.0.10", odd("an HTTP server without TLS"))
	w.put("10.0.0.11", board(uuidB, "S2", macB).configured(false))
	w.put("10.0.0.12", board("c0ffee00-0000-4000-8000-000000000001", "S3", macC).configured(true))
	broken := board("c0ffee00-0000-4000-8000-000000000002", "S4", "02:00:5e:00:53:04")
	broken.fail = errors.New("read tcp 10.0.0.1:40112->10.0.0.13:50000: connection reset by peer")
	w.put("10.0.0.13", broken)
	w.scan()
	got := w.cluster().Status
	want := v1alpha1.DiscoveryStatus{
		Phase: v1alpha1.DiscoveryIdle, ObservedGeneration: 1, Total: 255, Done: 255,
		Maintenance: 2, AlreadyConfigured: 2, NotTalos: 2, Unreachable: 249,
		Hosts: []v1alpha1.DiscoveredHost{
			{Address: "10.0.0.9", Class: v1alpha1.HostNotTalos, Message: "an SSH server"},
			{Address: "10.0.0.10", Class: v1alpha1.HostNotTalos, Message: "an HTTP server without TLS"},
			{Address: "10.0.0.11", Class: v1alpha1.HostAlreadyConfigured, Message: "a configured Talos machine"},
			{Address: "10.0.0.12", Class: v1alpha1.HostOursUnknown, Message: "a configured machine of this cluster that no TalosMachine describes (UUID c0ffee00-0000-4000-8000-000000000001, serial number S3, MAC addresses " + macC + ")"},
			{Address: "10.0.0.13", Class: v1alpha1.HostMaintenance, Message: "a Talos machine in maintenance mode that answers what can't be understood"},
			{Address: "10.0.9.7", Class: v1alpha1.HostUnreachable, Message: "no answer"},
		},
	}
	if diff := cmp.Diff(want, got.Discovery); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
	if !meta.IsStatusConditionTrue(got.Conditions, v1alpha1.ConditionDiscovered) {
		t.Errorf("conditions %+v", got.Conditions)
	}
	if names := w.names(); !cmp.Equal(names, []string{uuidA}) {
		t.Errorf("machines %v", names)
	}
	w.unchanged()
}

func TestAnEmptySpecIsSaid(t *testing.T) {
	w := newWorld(t, nil)
	w.editCluster(func(cluster *v1alpha1.TalosCluster) { cluster.Spec.Discovery = v1alpha1.Discovery{} })
	w.scan()
	condition := meta.FindStatusCondition(w.cluster().Status.Conditions, v1alpha1.ConditionDiscovered)
	if condition == nil || condition.Reason != reasonNothingToScan || condition.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v", condition)
	}
	w.unchanged()
}

func TestAtMostSoManyHostsAreListed(t *testing.T) {
	w := newWorld(t, nil)
	w.editCluster(func(cluster *v1alpha1.TalosCluster) {
		cluster.Spec.Discovery.Subnets = append(cluster.Spec.Discovery.Subnets, v1alpha1.DiscoverySubnet{CIDR: "10.0.1.0/24"})
	})
	for third := range 2 {
		for last := 1; last < 255; last++ {
			w.put(fmt.Sprintf("10.0.%d.%d", third, last), odd("an SSH server"))
		}
	}
	w.put("10.0.1.254", board(uuidA, "S1", macA).configured(true))
	w.scan()
	status := w.cluster().Status.Discovery
	if len(status.Hosts) != 256 || status.NotTalos != 507 {
		t.Errorf("%d hosts of %d", len(status.Hosts), status.NotTalos)
	}
	if last := status.Hosts[254:]; last[0].Address != "10.0.1.254" || last[0].Class != v1alpha1.HostOursUnknown || last[1].Address != "10.0.9.7" {
		t.Errorf("what matters most is left out: %+v", last)
	}
	w.unchanged()
}

func TestAWaitingMachineThatGoesAway(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA)
	w.put("10.0.0.7", a)
	w.scan()
	w.put("10.0.0.7", nil)
	w.scan()
	m := w.machine(uuidA)
	if got := conditionWords(m, v1alpha1.ConditionReachable); got != "False Unreachable" {
		t.Errorf("gone: %s", got)
	}
	w.unchanged()
	w.put("10.0.0.7", a)
	w.scan()
	if got := conditionWords(w.machine(uuidA), v1alpha1.ConditionReachable); got != "True Answers" {
		t.Errorf("back: %s", got)
	}
	broken := board(uuidA, "S1", macA)
	broken.fail = context.DeadlineExceeded
	w.put("10.0.0.7", broken)
	w.scan()
	if got := conditionWords(w.machine(uuidA), v1alpha1.ConditionReachable); got != "True Answers" {
		t.Errorf("there, but not to be read: %s", got)
	}
}

func TestANewCertificateIsRemembered(t *testing.T) {
	w := newWorld(t, nil)
	var last string
	for boot := range 10 {
		a := board(uuidA, "S1", macA)
		a.boot = fmt.Sprint(boot)
		last = string(a.fingerprint())
		w.put("10.0.0.7", a)
		w.scan()
		if boot == 1 {
			if events := w.events(); len(events) != 2 || !strings.Contains(events[1], "Normal FingerprintChanged") || !strings.Contains(events[1], last) {
				t.Errorf("events %q", events)
			}
		}
	}
	status := w.machine(uuidA).Status
	if status.MaintenanceFingerprint != last || len(status.FingerprintHistory) != 8 || status.FingerprintHistory[0].Fingerprint != last {
		t.Errorf("fingerprint %s, history %v", status.MaintenanceFingerprint, status.FingerprintHistory)
	}
	w.unchanged()
}

// approve does what a person's approval leaves behind.
func approve(m *v1alpha1.TalosMachine) {
	m.Spec.ApprovalState = v1alpha1.ApprovalApproved
	m.Spec.Approval = &v1alpha1.MachineApproval{MaintenanceFingerprint: m.Status.MaintenanceFingerprint}
}

func TestWhatIsRefreshedOfAnApprovedMachine(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.scan()
	w.edit(uuidA, func(m *v1alpha1.TalosMachine) {
		approve(m)
		m.Status.Phase = v1alpha1.PhaseApproved
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Waits"})
	})
	conditions := w.machine(uuidA).Status.Conditions

	again := board(uuidA, "S1", macA)
	again.boot, again.facts.TalosVersion = "second boot", "v1.13.10"
	again.facts.Inventory.Disks[0].Serial = "another disk"
	w.put("10.0.0.7", nil)
	w.put("10.0.0.8", again)
	w.scan()
	status := w.machine(uuidA).Status
	if status.MaintenanceFingerprint != string(again.fingerprint()) || status.TalosVersion != "v1.13.10" || status.Addresses[0] != "10.0.0.8" ||
		status.Inventory.Disks[0].Serial != "another disk" || status.Phase != v1alpha1.PhaseApproved {
		t.Errorf("before it was configured: %+v", status)
	}
	if diff := cmp.Diff(conditions, status.Conditions); diff != "" {
		t.Errorf("the machine controller's conditions changed (-before +after):\n%s", diff)
	}

	w.edit(uuidA, func(m *v1alpha1.TalosMachine) {
		now := metav1.Now()
		m.Status.Stage, m.Status.Phase, m.Status.TalosVersion = v1alpha1.StageRunning, v1alpha1.PhaseReady, "v1.14.5"
		m.Status.Provisioning = &v1alpha1.ProvisioningStatus{IntendedAt: &now, AppliedAt: &now}
		m.Status.Config = &v1alpha1.MachineConfigStatus{AppliedHash: "abc"}
	})
	third := board(uuidA, "S1", macA)
	third.boot = "third boot, wiped"
	w.put("10.0.0.8", nil)
	w.put("10.0.0.9", third)
	w.scan()
	status = w.machine(uuidA).Status
	if status.MaintenanceFingerprint != string(third.fingerprint()) || !cmp.Equal(status.Addresses, []string{"10.0.0.8", "10.0.0.9"}) {
		t.Errorf("what the machine controller needs to know wasn't told: %+v", status)
	}
	if status.Inventory.Disks[0].Serial != "another disk" {
		t.Errorf("anybody in maintenance mode writes what a configured machine is judged by: %+v", status.Inventory)
	}
	if status.Stage != v1alpha1.StageRunning || status.Phase != v1alpha1.PhaseReady || status.TalosVersion != "v1.14.5" {
		t.Errorf("what is the machine controller's was written: %+v", status)
	}
	w.unchanged()
}

func TestARejectedMachineIsOnlyRefreshed(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.scan()
	w.edit(uuidA, func(m *v1alpha1.TalosMachine) {
		m.Spec.ApprovalState = v1alpha1.ApprovalRejected
		m.Status.Phase = v1alpha1.PhaseRejected
	})
	w.put("10.0.0.7", nil)
	w.put("10.0.0.8", board(uuidA, "S1", macA))
	w.scan()
	m := w.machine(uuidA)
	if len(w.machines()) != 1 || m.Status.Addresses[0] != "10.0.0.8" || m.Status.Phase != v1alpha1.PhaseRejected || m.Spec.ApprovalState != v1alpha1.ApprovalRejected {
		t.Errorf("machines %v, status %+v", w.names(), m.Status)
	}
	w.unchanged()
}

func TestAConfiguredMachineOfOursThatMoved(t *testing.T) {
	w := newWorld(t, nil)
	a := board(uuidA, "S1", macA)
	w.put("10.0.0.7", a)
	w.scan()
	w.edit(uuidA, approve)
	w.put("10.0.0.7", nil)
	w.put("10.0.0.8", a.configured(true))
	w.scan()
	if got := w.machine(uuidA).Status.Addresses; !cmp.Equal(got, []string{"10.0.0.8"}) {
		t.Errorf("addresses %v", got)
	}
	w.unchanged()
	for _, host := range w.cluster().Status.Discovery.Hosts {
		if host.Address == "10.0.0.8" {
			t.Errorf("listed as odd: %+v", host)
		}
	}

	// While the machine controller reaches it, it isn't dialled here.
	w.edit(uuidA, func(m *v1alpha1.TalosMachine) {
		setCondition(m, v1alpha1.ConditionReachable, verdict{metav1.ConditionTrue, v1alpha1.ReasonAnswers, ""})
	})
	before := w.reads.Load()
	w.scan()
	if n := w.reads.Load() - before; n != 0 {
		t.Errorf("read %d times", n)
	}

	// At the address of an approved machine, what doesn't let us in is the machine controller's to report.
	w.edit(uuidA, func(m *v1alpha1.TalosMachine) { m.Status.Conditions = nil })
	w.put("10.0.0.8", a.configured(false))
	w.scan()
	if status := w.cluster().Status.Discovery; status.AlreadyConfigured != 1 || len(status.Hosts) != 1 {
		t.Errorf("discovery %+v", status)
	}
}

func TestAMachineThatIsBeingLetGoIsLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.scan()
	w.edit(uuidA, func(m *v1alpha1.TalosMachine) {
		now := metav1.Now()
		m.DeletionTimestamp, m.Finalizers = &now, []string{v1alpha1.MachineFinalizer}
	})
	again := board(uuidA, "S1", macA)
	again.boot = "reset"
	w.put("10.0.0.7", again)
	w.settle()
	before := w.machine(uuidA).ResourceVersion
	w.scan()
	if names := w.names(); !cmp.Equal(names, []string{uuidA}) || w.machine(uuidA).ResourceVersion != before {
		t.Errorf("machines %v", names)
	}
}

func TestConflictsAreResolvedByReadingAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.conflict.Store(3)
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.scan()
	if got := resolved(w.machine(uuidA)); got != "True StrongIdentity" {
		t.Errorf("after conflicts: %s", got)
	}
	w.conflict.Store(0)
	w.unchanged()
}

func TestAMachineThatTheServerRefusesIsListed(t *testing.T) {
	w := newWorld(t, nil)
	w.client.PrependReactor("create", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.CreateAction).GetObject().(*v1alpha1.TalosMachine).Name
		if name != uuidA {
			return false, nil, nil
		}
		return true, nil, apierrors.NewInvalid(v1alpha1.Kind("TalosMachine"), name, nil)
	})
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.put("10.0.0.8", board(uuidB, "S2", macB))
	w.scan()
	if hosts := w.cluster().Status.Discovery.Hosts; len(hosts) != 2 || hosts[0].Address != "10.0.0.7" || !strings.Contains(hosts[0].Message, "is invalid") {
		t.Errorf("hosts %+v", hosts)
	}
	if names := w.names(); !cmp.Equal(names, []string{uuidB}) {
		t.Errorf("machines %v", names)
	}
}

func TestAnAPIThatFailsEndsTheScan(t *testing.T) {
	w := newWorld(t, nil)
	w.client.PrependReactor("create", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
	})
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.settle()
	if _, err := w.c.reconcileCluster(t.Context(), "prod"); err == nil || !strings.Contains(err.Error(), "etcd is away") {
		t.Errorf("got error %v", err)
	}
	if status := w.cluster().Status.Discovery; status.ObservedGeneration != 0 {
		t.Errorf("an unfinished scan was written as finished: %+v", status)
	}
}

// door lets a test hold probes of some addresses.
type door struct {
	mu   sync.Mutex
	shut map[netip.Addr]chan struct{}
}

func (d *door) close(addresses ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = map[netip.Addr]chan struct{}{}
	for _, address := range addresses {
		d.shut[netip.MustParseAddr(address)] = make(chan struct{})
	}
}

func (d *door) gate(ctx context.Context, address netip.Addr) {
	d.mu.Lock()
	shut := d.shut[address]
	d.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-ctx.Done():
		}
	}
}

func TestALongScanShowsItsProgressAndIsCarriedOn(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Options.ProgressInterval = 10 * time.Millisecond })
	w.put("10.0.0.7", board(uuidA, "S1", macA))
	w.put("10.0.0.9", odd("an SSH server"))
	w.put("10.0.0.101", odd("an SSH server"))
	w.put("10.0.0.200", board(uuidB, "S2", macB))
	var d door
	d.close("10.0.0.100")
	w.gate = d.gate
	w.settle()

	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.c.reconcileCluster(ctx, "prod")
		ended <- err
	}()
	w.eventually("the progress is shown", func() bool { return w.cluster().Status.Discovery.Cursor == "10.0.0.100" })
	status := w.cluster().Status
	if status.Discovery.Phase != v1alpha1.DiscoveryScanning || status.Discovery.Done != 99 || status.Discovery.Total != 255 ||
		status.Discovery.Maintenance != 1 || status.Discovery.NotTalos != 1 || status.Discovery.Unreachable != 97 || status.Discovery.ObservedGeneration != 0 {
		t.Errorf("progress %+v", status.Discovery)
	}
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDiscovered); condition == nil || condition.Status != metav1.ConditionUnknown {
		t.Errorf("conditions %+v", status.Conditions)
	}
	kill()
	if err := <-ended; err == nil {
		t.Error("a scan that was killed ended well")
	}

	d.close()
	probed := w.probes("10.0.0.7")
	w.scan() // as by another controller: this one's memory is dropped
	if again := w.probes("10.0.0.7") - probed; again != 0 {
		t.Errorf("an address before the cursor was looked at %d times more", again)
	}
	want := v1alpha1.DiscoveryStatus{
		Phase: v1alpha1.DiscoveryIdle, ObservedGeneration: 1, Total: 255, Done: 255, Maintenance: 2, NotTalos: 2, Unreachable: 251,
		Hosts: []v1alpha1.DiscoveredHost{
			{Address: "10.0.0.9", Class: v1alpha1.HostNotTalos, Message: "an SSH server"},
			{Address: "10.0.0.101", Class: v1alpha1.HostNotTalos, Message: "an SSH server"},
			{Address: "10.0.9.7", Class: v1alpha1.HostUnreachable, Message: "no answer"},
		},
	}
	if diff := cmp.Diff(want, w.cluster().Status.Discovery); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
	if got := conditionWords(w.machine(uuidA), v1alpha1.ConditionReachable); got != "True Answers" {
		t.Errorf("a machine before the cursor: %s", got)
	}
}

func TestAScanOfAnotherSpecIsNotCarriedOn(t *testing.T) {
	t.Parallel()
	status := v1alpha1.TalosClusterStatus{
		Discovery:  v1alpha1.DiscoveryStatus{Phase: v1alpha1.DiscoveryScanning, Cursor: "10.0.0.3", Total: 6, Done: 2},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionDiscovered, ObservedGeneration: 4}},
	}
	for name, tc := range map[string]struct {
		generation int64
		subnet     string
		change     func(*v1alpha1.DiscoveryStatus)
		want       int
	}{
		"the same spec":   {4, "10.0.0.0/29", nil, 2},
		"a newer spec":    {5, "10.0.0.0/29", nil, 0},
		"more addresses":  {4, "10.0.0.0/28", nil, 0},
		"other addresses": {4, "10.0.1.0/29", nil, 0},
		"nothing cut off": {4, "10.0.0.0/29", func(s *v1alpha1.DiscoveryStatus) { s.Phase = v1alpha1.DiscoveryIdle }, 0},
		"a broken cursor": {4, "10.0.0.0/29", func(s *v1alpha1.DiscoveryStatus) { s.Cursor = "x" }, 0},
		"counts that lie": {4, "10.0.0.0/29", func(s *v1alpha1.DiscoveryStatus) { s.Done = 5 }, 0},
	} {
		cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Generation: tc.generation}, Status: *status.DeepCopy()}
		if tc.change != nil {
			tc.change(&cluster.Status.Discovery)
		}
		if got := newResults(newPlan(discover("", tc.subnet)), resumable(cluster)).first; got != tc.want {
			t.Errorf("%s: carried on at %d, want %d", name, got, tc.want)
		}
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for name, tc := range map[string]struct {
		state   state
		cluster v1alpha1.TalosCluster
		want    time.Duration // 0: due
	}{
		"never scanned by this process": {state{}, v1alpha1.TalosCluster{}, 0},
		"just scanned":                  {state{scanned: true, at: now}, clusterWith(0, "", time.Minute), time.Minute},
		"the interval is over":          {state{scanned: true, at: now.Add(-time.Minute)}, clusterWith(0, "", time.Minute), 0},
		"the spec changed":              {state{scanned: true, at: now}, clusterWith(1, "", time.Minute), 0},
		"a scan is asked for":           {state{scanned: true, at: now}, clusterWith(0, "now", time.Minute), 0},
		"it was answered":               {state{scanned: true, at: now, scanRequest: "now"}, clusterWith(0, "now", time.Minute), time.Minute},
		"no interval":                   {state{scanned: true, at: now}, clusterWith(0, "", 0), minInterval},
	} {
		due, left := tc.state.due(&tc.cluster, now)
		if due != (tc.want == 0) || !due && left != tc.want {
			t.Errorf("%s: due %t in %s, want in %s", name, due, left, tc.want)
		}
	}
}

func clusterWith(generation int64, request string, interval time.Duration) v1alpha1.TalosCluster {
	return v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Generation: generation},
		Spec:       v1alpha1.TalosClusterSpec{Discovery: v1alpha1.Discovery{ScanRequest: request, Interval: metav1.Duration{Duration: interval}}},
	}
}

func TestAMachineThatWasGivenUpAndComesBackIsSaidToBeQuarantined(t *testing.T) {
	w := newWorld(t, nil)
	const uuid = "c0ffee00-0000-4000-8000-000000000001"
	w.editCluster(func(c *v1alpha1.TalosCluster) {
		c.Status.Quarantined = []v1alpha1.QuarantinedMachine{{
			MachineUID: "old", Name: uuid, Identity: v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: "S3", MACAddresses: []string{macC}},
			By: "anna", At: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		}}
	})
	w.put("10.0.0.12", board(uuid, "S3", macC).configured(true))
	w.put("10.0.0.13", board("c0ffee00-0000-4000-8000-000000000002", "S4", "02:00:5e:00:53:04").configured(true))
	w.scan()
	var classes []v1alpha1.HostClass
	for _, host := range w.cluster().Status.Discovery.Hosts[:2] {
		classes = append(classes, host.Class)
	}
	if diff := cmp.Diff([]v1alpha1.HostClass{v1alpha1.HostQuarantined, v1alpha1.HostOursUnknown}, classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if said := w.cluster().Status.Discovery.Hosts[0].Message; !strings.Contains(said, uuid) || !strings.Contains(said, "anna") {
		t.Errorf("it is said to be %q", said)
	}
	if names := w.names(); len(names) != 0 {
		t.Errorf("machines were entered: %v", names)
	}
}
