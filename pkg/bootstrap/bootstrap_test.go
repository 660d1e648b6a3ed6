// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	cmpordered "cmp"
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	stdruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned/fake"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/pkg/talos/talostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	uuid        = "4c4c4544-0051-3610-8052-b4c04f4c3132"
	fingerprint = "fp-console"
)

// site is a machine in a rack, and the APIs that it will carry.
type site struct {
	t       *testing.T
	world   *talostest.World
	machine *talostest.Machine
	api     *fake.Clientset
	kube    *kubefake.Clientset
	dir     string
	// installs counts the calls of Install; killed is returned by the next ones.
	installs int
	killAt   Step
	told     []string
	change   func(*Config)
	timeout  time.Duration
}

// bundleText is one bundle for all tests but the one that makes its own: an RSA key takes seconds.
var bundleText = sync.OnceValues(func() ([]byte, error) {
	contract, err := machineconfig.Contract()
	if err != nil {
		return nil, err
	}
	bundle, err := secretsbundle.Generate(contract, time.Now())
	if err != nil {
		return nil, err
	}
	return bundle.Marshal()
})

// giveBundle puts a bundle into the state directory.
func (s *site) giveBundle() {
	s.t.Helper()
	text, err := bundleText()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, bundleFile), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, world: talostest.NewWorld(), api: fake.NewSimpleClientset(), kube: kubefake.NewClientset(), dir: filepath.Join(t.TempDir(), "state")}
	s.machine = talostest.NewMachine(talostest.State{
		Mode: talostest.Maintenance, Fingerprint: fingerprint,
		Facts: talos.Facts{
			Identity:     v1alpha1.MachineIdentity{UUID: uuid, SerialNumber: "SN", MACAddresses: []string{"02:00:5e:00:53:01"}},
			TalosVersion: "v1.13.9", Addresses: []string{"10.0.0.11"},
			Stage: talos.MachineStage{Stage: v1alpha1.StageMaintenance, Ready: true},
			Inventory: &v1alpha1.MachineInventory{
				Disks: []v1alpha1.DiskInventory{{Device: "/dev/sda", Serial: "D1", Transport: "sata"}},
				Links: []v1alpha1.LinkInventory{{Name: "enp1s0", PermanentMAC: "02:00:5e:00:53:01"}},
			},
		},
	})
	s.world.Put("10.0.0.11", s.machine)
	s.timeout = time.Minute
	return s
}

// Probe lets the machine go a step on its own way each time it is looked at.
func (s *site) Probe(ctx context.Context, address netip.Addr) talos.Probe {
	return s.world.Probe(ctx, address)
}

func (s *site) DialMaintenance(ctx context.Context, address netip.Addr, pin talos.Fingerprint) (talos.MaintenanceNode, error) {
	return s.world.DialMaintenance(ctx, address, pin)
}

func (s *site) DialConfigured(ctx context.Context, address netip.Addr, credentials talos.Credentials) (talos.ConfiguredNode, error) {
	s.machine.Do(func(state *talostest.State) {
		switch state.Facts.Stage.Stage {
		case v1alpha1.StageBooting:
			if state.Facts.SystemDisk == nil {
				state.Facts.Stage.Stage = v1alpha1.StageInstalling
			}
		case v1alpha1.StageInstalling:
			state.Facts.SystemDisk = &v1alpha1.SystemDisk{Device: "/dev/sda", Serial: "D1"}
			state.Facts.Stage.Stage = v1alpha1.StageRebooting
		case v1alpha1.StageRebooting:
			state.Facts.Stage.Stage = v1alpha1.StageBooting
			state.Facts.Hostname = "cp-1"
		}
		if state.Bootstraps > 0 {
			state.Kubeconfig = []byte("kubeconfig")
			state.Facts.NodeName = "cp-1"
		}
	})
	return s.world.DialConfigured(ctx, address, credentials)
}

func TestAnAuditPolicyThatIsToStayStays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.change = func(config *Config) { config.KeepAuditPolicy = true }
	if _, err := s.run(); err != nil {
		t.Fatal(err)
	}
	if sent := s.machine.Snapshot().Applied[0]; bytes.Contains(sent, []byte("omitStages")) {
		t.Error("the machine was sent Ichor's audit policy")
	}
}

func (s *site) config() Config {
	config := Config{
		Cluster: &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "prod"},
			Spec: v1alpha1.TalosClusterSpec{
				SecretsRef:   v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
				ControlPlane: v1alpha1.ControlPlane{Count: 3, Endpoint: v1alpha1.Endpoint{Host: "10.0.0.10"}},
			},
		},
		Machine: &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{
			Hostname: "cp-1", Disks: []v1alpha1.MachineDisk{{Match: v1alpha1.DiskMatch{Serial: "D1"}, Role: v1alpha1.DiskSystem}},
		}},
		Address: netip.MustParseAddr("10.0.0.11"), Fingerprint: fingerprint, StateDir: s.dir, Dialer: s, Prober: s,
		Install:  func(context.Context, Access) error { s.installs++; return nil },
		Progress: func(event Event) { s.told = append(s.told, string(event.Step)+": "+event.Message) },
	}
	if s.change != nil {
		s.change(&config)
	}
	return config
}

// run runs with short waits; what ends it is the result, an error, or a second.
func (s *site) run() (*Result, error) {
	s.t.Helper()
	r, err := prepare(s.config())
	if err != nil {
		return nil, err
	}
	defer r.journal.close()
	r.interval, r.applyWindow = time.Millisecond, 100*time.Millisecond
	r.connect = func([]byte) (*clients, error) {
		return &clients{kubernetes: s.kube, ichor: s.api, ready: func(context.Context) error { return nil }}, nil
	}
	if s.killAt != "" {
		told := r.Progress
		r.Progress = func(event Event) {
			told(event)
			if event.Step == s.killAt {
				stdruntime.Goexit()
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	return r.run(ctx)
}

// runUntilKilled runs in a goroutine that ends in the midst of it, as a process that is killed does.
func (s *site) runUntilKilled() {
	s.t.Helper()
	survived := true
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := s.run()
		s.t.Errorf("ran to its end: %v", err)
		survived = false
	}()
	<-done
	if !survived {
		s.t.FailNow()
	}
}

func TestTheFirstNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	result, err := s.run()
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(s.told, "\n"))
	}
	state := s.machine.Snapshot()
	if len(state.Applied) != 1 || state.Bootstraps != 1 || s.installs != 1 {
		t.Errorf("configurations %d, bootstraps %d, installs %d; want one of each", len(state.Applied), state.Bootstraps, s.installs)
	}
	machine, err := s.api.IchorV1alpha1().TalosMachines().Get(t.Context(), uuid, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec := machine.Spec
	if spec.Origin != v1alpha1.MachineAdopted || spec.ApprovalState != v1alpha1.ApprovalApproved || spec.Role != v1alpha1.RoleControlPlane || spec.Hostname != "cp-1" || spec.Address != "10.0.0.11" || len(spec.Disks) != 1 {
		t.Errorf("entered as %+v", spec)
	}
	if machine.Status.Inventory == nil || machine.Status.SettledVersions == nil || machine.Status.Config.AppliedHash == "" {
		t.Errorf("status is %+v", machine.Status)
	}
	cluster, err := s.api.IchorV1alpha1().TalosClusters().Get(t.Context(), "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cluster.Spec.Hardening.AuditPolicy != v1alpha1.AuditPolicyIchor || !bytes.Contains(state.Applied[0], []byte("omitStages")) {
		t.Errorf("the cluster is entered with the audit policy %q, and its first machine was sent another than Ichor's", cluster.Spec.Hardening.AuditPolicy)
	}
	store := secretsbundle.Store{Secrets: s.kube.CoreV1()}
	bundle, err := store.Load(t.Context(), v1alpha1.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"})
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := store.EnsureEtcdClient(t.Context(), bundle, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(etcd.Certificate), string(result.Access.EtcdCert)); diff != "" {
		t.Error("the certificate in the Secret is not the one that Install got")
	}
	if len(result.Access.TalosConfig) == 0 || len(result.Access.Kubeconfig) == 0 {
		t.Error("access is incomplete")
	}
	assertPrivate(t, s.dir)
	for _, line := range s.told {
		if strings.Contains(line, bundle.Talos().Secrets.BootstrapToken) {
			t.Error("progress holds a secret")
		}
	}
}

func assertPrivate(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A run that is cut off at any step is resumed, and everything happens once.
func TestResumedAfterEveryStep(t *testing.T) {
	t.Parallel()
	for _, step := range []Step{StepBundle, StepConfigure, StepInstall, StepEtcd, StepKubernetes, StepRegister} {
		t.Run("killed in step "+string(step), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if step != StepBundle {
				s.giveBundle()
			}
			s.killAt = step
			s.runUntilKilled()
			s.killAt = ""
			if _, err := s.run(); err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(s.told, "\n"))
			}
			if _, err := s.run(); err != nil {
				t.Fatalf("a third run, on the finished cluster: %v", err)
			}
			state := s.machine.Snapshot()
			if len(state.Applied) != 1 || state.Bootstraps != 1 {
				t.Errorf("configurations %d, bootstraps %d; want one of each", len(state.Applied), state.Bootstraps)
			}
		})
	}
}

func TestAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*site, *talostest.State){
		"of the configuration": func(_ *site, state *talostest.State) { state.Fault = talostest.LoseAnswer },
		"of a request that never arrived": func(s *site, state *talostest.State) {
			state.Fault = talostest.LoseRequest
			s.change = func(config *Config) {
				told := config.Progress
				config.Progress = func(event Event) {
					told(event)
					s.machine.Do(func(state *talostest.State) { state.Fault = talostest.NoFault })
				}
			}
		},
		"of the bootstrap of etcd": func(s *site, state *talostest.State) {
			state.BootstrapErr = status.Error(codes.Unavailable, "lost")
			s.change = func(config *Config) {
				told := config.Progress
				config.Progress = func(event Event) {
					told(event)
					if strings.Contains(event.Message, "lost") {
						s.machine.Do(func(state *talostest.State) {
							state.BootstrapErr = status.Error(codes.AlreadyExists, "etcd data directory is not empty")
							state.Bootstraps++
						})
					}
					if strings.Contains(event.Message, "etcd is starting") {
						s.machine.Do(func(state *talostest.State) { state.Members = []talos.EtcdMember{{ID: 1, Hostname: "cp-1"}} })
					}
				}
			}
		},
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.giveBundle()
			s.machine.Do(func(state *talostest.State) { script(s, state) })
			if _, err := s.run(); err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(s.told, "\n"))
			}
			state := s.machine.Snapshot()
			if len(state.Applied) != 1 || state.Bootstraps != 1 {
				t.Errorf("configurations %d, bootstraps %d; want one of each", len(state.Applied), state.Bootstraps)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		machine func(*talostest.State)
		config  func(*Config)
		want    string
		timeout time.Duration
	}{
		"another certificate": {machine: func(s *talostest.State) { s.Fingerprint = "fp-other" }, want: "fp-other"},
		"another machine": {config: func(c *Config) {
			c.Machine.Spec.Identity = v1alpha1.MachineIdentity{UUID: "11111111-2222-3333-4444-555555555555"}
		}, want: "nothing was sent to it"},
		"no Talos":                {machine: func(s *talostest.State) { s.Mode = talostest.NotTalos }, want: "an SSH server"},
		"configured already":      {machine: func(s *talostest.State) { s.Mode = talostest.Locked }, want: "configured already"},
		"a disk that isn't there": {config: func(c *Config) { c.Machine.Spec.Disks[0].Match.Serial = "X" }, want: "serial X"},
		"refused by the machine":  {machine: func(s *talostest.State) { s.Fault = talostest.Refuse }, want: "no such thing"},
		"a worker":                {config: func(c *Config) { c.Machine.Spec.Role = v1alpha1.RoleWorker }, want: "not a worker"},
		"nothing at all":          {config: func(c *Config) { *c = Config{} }, want: "a cluster with a name is required"},
		"a silent machine":        {machine: func(s *talostest.State) { s.Mode = talostest.Off }, want: "nothing answers at 10.0.0.11", timeout: 300 * time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.giveBundle()
			s.timeout = cmpordered.Or(tc.timeout, s.timeout)
			s.change = tc.config
			if tc.machine != nil {
				s.machine.Do(tc.machine)
			}
			_, err := s.run()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("want an error with %q, got %v", tc.want, err)
			}
			if got := len(s.machine.Snapshot().Applied); got != 0 {
				t.Errorf("%d configurations were sent", got)
			}
		})
	}
}

func TestEtcdIsNotBootstrappedTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.giveBundle()
	if _, err := s.run(); err != nil {
		t.Fatal(err)
	}
	s.machine.Do(func(state *talostest.State) { state.Members = nil })
	s.timeout = time.Second
	_, err := s.run()
	if err == nil || !strings.Contains(err.Error(), "has not come up") {
		t.Errorf("want a refusal, got %v", err)
	}
	if got := s.machine.Snapshot().Bootstraps; got != 1 {
		t.Errorf("etcd was bootstrapped %d times", got)
	}
}

func TestWhatTheMachineRunsLaterIsIchorsToChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.giveBundle()
	if _, err := s.run(); err != nil {
		t.Fatal(err)
	}
	s.machine.Do(func(state *talostest.State) { state.Config = []byte("with a label") })
	if _, err := s.run(); err != nil {
		t.Fatal(err)
	}
}

func TestSomebodyElseWasFaster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.giveBundle()
	s.machine.Do(func(state *talostest.State) {
		state.OnApply = func() { s.machine.Do(func(state *talostest.State) { state.Config = []byte("foreign") }) }
	})
	if _, err := s.run(); err == nil || !strings.Contains(err.Error(), "somebody else configured it") {
		t.Errorf("want a refusal, got %v", err)
	}
}

func TestEtcdDataOfSomebodyElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.giveBundle()
	s.machine.Do(func(state *talostest.State) {
		state.BootstrapErr = status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	})
	for range 2 {
		if _, err := s.run(); err == nil || !strings.Contains(err.Error(), "knows of no bootstrap") {
			t.Errorf("want a refusal, got %v", err)
		}
	}
}

func TestOneRunAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := openJournal(dir, "prod")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(dir, "prod"); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a second run began: %v", err)
	}
	first.close()
	second, err := openJournal(dir, "prod")
	if err != nil {
		t.Fatal(err)
	}
	second.Etcd.IntendedAt = new(time.Now())
	if err := second.save(); err != nil {
		t.Fatal(err)
	}
	second.close()
	if _, err := openJournal(dir, "test"); err == nil || !strings.Contains(err.Error(), "of cluster prod") {
		t.Errorf("another cluster's journal was taken: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, journalFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(dir, "prod"); err == nil {
		t.Error("a broken journal was taken as none")
	}
}

func TestTheAPIIsNotSteadyYet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ verb, what, part string }{
		"when it is asked to enter the cluster":    {"create", "talosclusters", ""},
		"when it is asked to enter the machine":    {"create", "talosmachines", ""},
		"when it is asked to describe the machine": {"update", "talosmachines", "status"},
		"when it is asked to approve the machine":  {"update", "talosmachines", "approval"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.giveBundle()
			failures := 3
			s.api.PrependReactor(tc.verb, tc.what, func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.GetSubresource() != tc.part {
					return false, nil, nil
				}
				if failures--; failures >= 0 {
					return true, nil, fmt.Errorf("the server is currently unable to handle the request")
				}
				return false, nil, nil
			})
			if _, err := s.run(); err != nil {
				t.Fatal(err)
			}
			if failures >= 0 {
				t.Errorf("it was asked %d times too few", failures+1)
			}
		})
	}
}
