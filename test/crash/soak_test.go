// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/chaos/operations"
	"maesh.dev/ichor/test/localstack"
)

// Settings of the soak: how many operations, and what decides about them.
const (
	countEnv = "CHAOS_OPERATIONS"
	chaosEnv = "CHAOS_SEED"
	// operationFor bounds one operation.
	operationFor = 15 * time.Minute
	// rolledPatch is changed before each roll-out.
	rolledPatch = "rolled"
)

// soak is a cluster on which operations are done while everything fails.
type soak struct {
	*crashes
	t       *testing.T
	rng     *rand.Rand
	members []v1alpha1.TalosMachine

	faults    []operations.Fault
	current   *trouble
	victim    *v1alpha1.TalosMachine
	until     time.Time
	nextFault time.Time
	pauses    map[string][]operations.Pause
}

func (s *soak) seconds() float64 { return time.Since(s.begin).Seconds() }

// number is a setting of the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// soaks are for the long form.
func soaks() []string {
	if chaos() {
		return []string{"all kinds"}
	}
	return nil
}

// TestOperationsSoak does operations of all kinds while machines lose power and network, answer slowly and fail to install, while
// members of etcd stop, and while servers and a controller die. Each ends, or stops for a reason that is true; by the machines' own
// logs Ichor never takes quorum away, and tells nothing twice; nothing is left behind.
func TestOperationsSoak(t *testing.T) {
	for _, name := range soaks() {
		t.Run(name, soaked)
	}
}

func soaked(t *testing.T) {
	t.Setenv(soakEnv, "1")
	seed, count := number(t, chaosEnv, 0), number(t, countEnv, 100)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%s=%d %s=%d", chaosEnv, seed, countEnv, count)
	s := &soak{crashes: &crashes{controllers: 2}, t: t, rng: rand.New(rand.NewPCG(seed, 0)), pauses: map[string][]operations.Pause{}}
	cluster5(t, s.crashes)
	s.members = s.machines(t)
	before := s.lead(t)
	since := time.Now()
	phases := map[string]int{}
	for n := range int(count) {
		operation := s.make(t, n)
		end := s.follow(t, operation)
		phases[kindOf(end)+" "+string(end.Status.Phase)]++
		t.Logf("%5.1fs operation %d, %s: %s: %s", s.seconds(), n, end.Name, end.Status.Phase, end.Status.Message)
		s.powerOn(t)
		if end.Status.FinishedAt == nil {
			break // it holds the cluster; what follows would only wait for it
		}
	}
	s.mend(t)
	s.ready(t, len(s.members))
	after := s.process(t)
	t.Logf("%d faults; operations: %v; the controller that nobody killed: %+v, then %+v", len(s.faults), phases, before, after)
	grown := &[2]operations.Process{before, after}
	s.judge(t, since, s, grown)
}

// make makes an operation of a random kind on random machines.
func (s *soak) make(t *testing.T, n int) *v1alpha1.TalosOperation {
	t.Helper()
	operation := &v1alpha1.TalosOperation{}
	spec := &operation.Spec
	spec.ClusterRef.Name = localstack.ClusterName
	var names []string
	for _, at := range s.rng.Perm(len(s.members))[:1+s.rng.IntN(3)] {
		names = append(names, s.members[at].Name)
	}
	switch s.rng.IntN(6) {
	case 0, 1:
		spec.Reboot = &v1alpha1.Reboot{}
	case 2, 3:
		sum := sha256.Sum256([]byte(strconv.Itoa(n)))
		spec.TalosUpgrade = &v1alpha1.TalosUpgrade{Version: localstack.TalosVersion, SchematicID: hex.EncodeToString(sum[:])}
	case 4:
		names = names[:1]
		spec.Shutdown = &v1alpha1.Shutdown{}
	default:
		s.changeConfiguration(t, n, names)
		spec.ConfigRollout = &v1alpha1.ConfigRollout{}
	}
	spec.Machines = &v1alpha1.OperationMachines{Names: names}
	operation.Name = fmt.Sprintf("soak-%03d-%s", n, strings.ToLower(kindOf(operation)))
	if s.rng.IntN(10) == 0 {
		spec.Mode = v1alpha1.OperationModePlan
	}
	eventually(t, 2*time.Minute, func() error {
		made, err := s.ichor.IchorV1alpha1().TalosOperations().Create(t.Context(), operation, metav1.CreateOptions{})
		if err == nil {
			operation = made
		}
		return err
	})
	return operation
}

// changeConfiguration gives machines something that waits for a reboot.
func (s *soak) changeConfiguration(t *testing.T, n int, names []string) {
	t.Helper()
	patches := s.ichor.IchorV1alpha1().TalosConfigPatches()
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", rolledPatch, n)}}
	patch.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, MachineNames: names}
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: fmt.Appendf(nil, `{"udev":{"rules":["SUBSYSTEM==\"tty%d\""]}}`, n)}
	eventually(t, 2*time.Minute, func() error {
		_, err := patches.Create(t.Context(), patch, metav1.CreateOptions{})
		return err
	})
	eventually(t, 3*time.Minute, func() error {
		for _, name := range names {
			m, err := s.ichor.IchorV1alpha1().TalosMachines().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if m.Status.Config == nil || !m.Status.Config.PendingReboot {
				return fmt.Errorf("nothing waits for a reboot of machine %s", name)
			}
		}
		return nil
	})
}

// follow disturbs an operation until it has ended, and does what people do: suspends it and lets it go on, cancels it, has a step
// tried again.
func (s *soak) follow(t *testing.T, operation *v1alpha1.TalosOperation) *v1alpha1.TalosOperation {
	t.Helper()
	deadline := time.Now().Add(operationFor)
	cancelAt, suspendAt := time.Time{}, time.Time{}
	switch moment := time.Now().Add(time.Duration(2+s.rng.IntN(40)) * time.Second); s.rng.IntN(6) {
	case 0:
		cancelAt = moment
	case 1, 2:
		suspendAt = moment
	}
	client := s.ichor.IchorV1alpha1().TalosOperations()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for time.Now().Before(deadline) {
		<-ticker.C
		s.disturb(t)
		now, err := client.Get(t.Context(), operation.Name, metav1.GetOptions{})
		if err != nil {
			continue // servers are away at times
		}
		operation = now
		status := &now.Status
		switch {
		case status.FinishedAt != nil:
			return now
		case now.Spec.Suspend && time.Now().After(suspendAt.Add(10*time.Second)):
			_, _ = client.Patch(t.Context(), now.Name, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}) // again, if need be
		case !cancelAt.IsZero() && time.Now().After(cancelAt) && (now.Spec.Control == nil || !now.Spec.Control.CancelRequested):
			_, _ = client.Cancel(t.Context(), now.Name, now, metav1.UpdateOptions{})
		case !suspendAt.IsZero() && !now.Spec.Suspend && time.Now().After(suspendAt) && time.Now().Before(suspendAt.Add(5*time.Second)):
			_, _ = client.Patch(t.Context(), now.Name, types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{})
		case status.Phase == v1alpha1.OperationPaused && !now.Spec.Suspend && !strings.HasPrefix(status.Message, "suspended"):
			s.stopped(t, now)
		}
	}
	t.Errorf("operation %s has not ended after %s: %s: %s", operation.Name, operationFor, operation.Status.Phase, operation.Status.Message)
	return operation
}

// stopped does what a person does about an operation that stopped: mends, and has it tried again or cancels it.
func (s *soak) stopped(t *testing.T, now *v1alpha1.TalosOperation) {
	t.Helper()
	control := now.Spec.Control
	if control != nil && (control.ResumeRequests > now.Status.HandledResumeRequests || control.CancelRequested) {
		return // it was asked to, and hasn't looked yet
	}
	t.Logf("%5.1fs operation %s stopped: %s", s.seconds(), now.Name, now.Status.Message)
	s.pauses[now.Name] = append(s.pauses[now.Name], operations.Pause{At: time.Now(), Machine: now.Status.Current, Message: now.Status.Message})
	s.mend(t)
	client := s.ichor.IchorV1alpha1().TalosOperations()
	if s.rng.IntN(3) == 0 {
		_, _ = client.Cancel(t.Context(), now.Name, now, metav1.UpdateOptions{}) // again in the next round, if that fails
		return
	}
	_, _ = client.Resume(t.Context(), now.Name, now, metav1.UpdateOptions{})
}

// powerOn switches on what is off, as a person does after a shutdown.
func (s *soak) powerOn(t *testing.T) {
	t.Helper()
	for i := range s.members {
		if s.current != nil && s.victim.Name == s.members[i].Name {
			continue
		}
		console, err := s.stack.Machines().Status(t.Context(), s.hardware(t, s.members[i].Name).Name)
		if err != nil {
			t.Fatal(err)
		}
		if !console.Powered {
			s.do(t, "power-on", s.members[i].Name)
		}
	}
}

const (
	// leads is how many goroutines more a controller has at least when it leads.
	leads = 100
	// leadFor is how long it may take until one leads after the other was killed: a Lease runs out before.
	leadFor = 45 * time.Second
	// maxTurns is how often the other is killed for that: it is back at once, and may lead again.
	maxTurns = 8
)

// lead has the controller that nobody will kill lead, so that it is held against itself as a leader, and measures it.
func (s *soak) lead(t *testing.T) operations.Process {
	t.Helper()
	waits := s.process(t)
	for range maxTurns {
		if err := syscall.Kill(s.stack.Controllers()[0].PID(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(leadFor); time.Now().Before(end); {
			if now := s.process(t); now.Goroutines > waits.Goroutines+leads {
				s.ready(t, len(s.members))
				return s.process(t)
			}
			<-time.After(look)
		}
	}
	t.Fatalf("the second controller never led, though the first one was killed %d times", maxTurns)
	return waits
}

// process is how large the controller is that nobody kills, after a garbage collection.
func (s *soak) process(t *testing.T) operations.Process {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var text []byte
	eventually(t, time.Minute, func() error {
		for _, path := range []string{"/debug/pprof/heap?gc=1", "/metrics"} {
			response, err := client.Get("http://" + s.stack.ControllerHealth(1) + path)
			if err != nil {
				return err
			}
			text, err = io.ReadAll(io.LimitReader(response.Body, 16<<20))
			_ = response.Body.Close() // it was read
			if err != nil {
				return err
			}
		}
		return nil
	})
	value := func(name string) float64 {
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if rest, found := strings.CutPrefix(lines.Text(), name+" "); found {
				number, err := strconv.ParseFloat(rest, 64)
				if err == nil {
					return number
				}
			}
		}
		t.Errorf("the controller has no metric %s", name)
		return 0
	}
	return operations.Process{Started: value("process_start_time_seconds"), Goroutines: value("go_goroutines"), HeapMB: value("go_memstats_heap_alloc_bytes") / 1e6}
}
