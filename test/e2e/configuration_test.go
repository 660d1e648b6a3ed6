// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
	"maesh.dev/ichor/test/localstack"
)

// patches reach every machine of the cluster, the first control plane too, which was entered as it ran. What somebody
// changes on a machine is seen, and mended if the cluster says so; what needs a reboot waits; and a patch that goes leaves
// nothing behind.
func patchedMachines(t *testing.T, s *suite) {
	patches := s.admin.IchorV1alpha1().TalosConfigPatches()
	section := func(name, text string, machines ...string) {
		t.Helper()
		patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: name}}
		patch.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, MachineNames: machines}
		patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(text)}
		if _, err := patches.Create(t.Context(), patch, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first := s.at(t, s.stack.Fleet().Machines[0].Addr())
	if !bytes.Contains(s.running(t, first), []byte("omitStages")) || first.Status.Config.DriftCount > 0 {
		t.Errorf("the first control plane of a cluster that Ichor created doesn't log with Ichor's audit policy, or its configuration is %+v", first.Status.Config)
	}
	section("tuning", `{"sysctls":{"vm.swappiness":"1"}}`)
	eventually(t, 4*time.Minute, func() error {
		patch, err := patches.Get(t.Context(), "tuning", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready := s.ready(t); int(patch.Status.Machines.Applied) < len(ready) {
			return fmt.Errorf("%d machines are Ready, and the patch is on %+v: %+v", len(ready), patch.Status.Machines, patch.Status.Conditions)
		}
		return nil
	})
	worker := s.readyWorker(t)
	if got := s.running(t, worker); !bytes.Contains(got, []byte("vm.swappiness: \"1\"")) {
		t.Fatal("the patch is said to be applied, and isn't in what the worker runs")
	}

	s.changeByHand(t, worker, "vm.swappiness: \"1\"", "vm.swappiness: \"99\"")
	began := time.Now()
	eventually(t, 2*time.Minute, func() error {
		config := s.get(t, worker.Name).Status.Config
		if len(config.Drift) != 1 || config.DriftCount != 1 || config.Drift[0].Have != "99" || config.Drift[0].Path != `machine.sysctls["vm.swappiness"]` {
			return fmt.Errorf("its drift is %+v", config.Drift)
		}
		return nil
	})
	// Nothing called for a look: the watch did. The regular look comes each minute.
	t.Logf("what was changed by hand was seen after %s", time.Since(began).Round(100*time.Millisecond))
	eventually(t, time.Minute, func() error {
		drift := condition(s.cluster(t).Status.Conditions, v1alpha1.ConditionDriftDetected)
		if drift.Status != metav1.ConditionTrue || !strings.Contains(drift.Message, worker.Name) {
			return fmt.Errorf("the cluster says of its machines' configurations %+v", drift)
		}
		return nil
	})
	s.driftPolicy(t, v1alpha1.DriftPolicyReapply)
	eventually(t, 2*time.Minute, func() error {
		if got := s.running(t, worker); !bytes.Contains(got, []byte("vm.swappiness: \"1\"")) {
			return errors.New("it is not mended")
		}
		m := s.get(t, worker.Name)
		if drift := condition(m.Status.Conditions, v1alpha1.ConditionDriftDetected); drift.Reason != v1alpha1.ReasonInSync || len(m.Status.Config.Drift) > 0 {
			return fmt.Errorf("it is mended, and said to be %+v with %+v", drift, m.Status.Config.Drift)
		}
		return nil
	})
	s.driftPolicy(t, v1alpha1.DriftPolicyReport)

	applies := s.console(t, worker).Applies
	section("udev", `{"udev":{"rules":["SUBSYSTEM==\"drm\""]}}`, worker.Name)
	eventually(t, 2*time.Minute, func() error {
		m := s.get(t, worker.Name)
		if applied := condition(m.Status.Conditions, v1alpha1.ConditionConfigApplied); applied.Reason != v1alpha1.ReasonRebootRequired || !m.Status.Config.PendingReboot {
			return fmt.Errorf("what needs a reboot is said to be %+v", applied)
		}
		return nil
	})
	for _, name := range []string{"udev", "tuning"} {
		if err := patches.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 4*time.Minute, func() error {
		list, err := s.admin.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, m := range list.Items {
			if config := m.Status.Config; config != nil && m.Status.NodeName != "" && (len(config.Patches) > 0 || config.PendingReboot || config.DriftCount > 0) {
				return fmt.Errorf("machine %s still has %+v", m.Name, config)
			}
		}
		return nil
	})
	if got := s.running(t, worker); bytes.Contains(got, []byte("vm.swappiness")) || bytes.Contains(got, []byte("drm")) {
		t.Error("the patches are gone, and the worker still runs with one")
	}
	if now := s.console(t, worker).Applies; now != applies+1 {
		t.Errorf("the worker got %d configurations since it was in sync, want 1: none of what needed a reboot", now-applies)
	}
	rememberedConfigurations(t, s, worker, "tuning")
}

// ready are the machines that are Ready.
func (s *suite) ready(t *testing.T) []*v1alpha1.TalosMachine {
	t.Helper()
	list, err := s.admin.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var ready []*v1alpha1.TalosMachine
	for i := range list.Items {
		if condition(list.Items[i].Status.Conditions, v1alpha1.ConditionReady).Status == metav1.ConditionTrue {
			ready = append(ready, &list.Items[i])
		}
	}
	return ready
}

// readyWorker is a worker that is Ready.
func (s *suite) readyWorker(t *testing.T) *v1alpha1.TalosMachine {
	t.Helper()
	for _, m := range s.ready(t) {
		if m.Spec.Role == v1alpha1.RoleWorker {
			return m
		}
	}
	t.Fatal("no worker is Ready")
	return nil
}

// talos connects to a machine as a person with the cluster's talosconfig would.
func (s *suite) talos(t *testing.T, m *v1alpha1.TalosMachine) talos.ConfiguredNode {
	t.Helper()
	store := secretsbundle.Store{Secrets: s.kubernetes.CoreV1()}
	provider := secretsbundle.NewProvider(store, func(string) (*v1alpha1.TalosCluster, error) { return s.cluster(t), nil }, clock.RealClock{})
	credentials, err := provider.CredentialsFor(t.Context(), localstack.ClusterName)
	if err != nil {
		t.Fatal(err)
	}
	address, err := netip.ParseAddr(m.Status.Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound(30*time.Second))
	defer cancel()
	node, err := talos.NewDialer(talos.DialOptions{}).DialConfigured(ctx, address, credentials)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

// running is the configuration that a machine runs.
func (s *suite) running(t *testing.T, m *v1alpha1.TalosMachine) []byte {
	t.Helper()
	text, err := s.talos(t, m).RunningConfiguration(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// changeByHand changes what a machine runs behind Ichor's back.
func (s *suite) changeByHand(t *testing.T, m *v1alpha1.TalosMachine, old, replacement string) {
	t.Helper()
	node := s.talos(t, m)
	text, err := node.RunningConfiguration(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("the machine doesn't run with %q", old)
	}
	if _, err := node.ApplyConfiguration(t.Context(), bytes.Replace(text, []byte(old), []byte(replacement), 1), talos.ApplyNoReboot); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) driftPolicy(t *testing.T, policy v1alpha1.DriftPolicy) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"driftPolicy":%q}}`, policy)
	if _, err := s.admin.IchorV1alpha1().TalosClusters().Patch(t.Context(), localstack.ClusterName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
