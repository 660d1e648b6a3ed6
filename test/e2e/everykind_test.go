// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/documents"
	"maesh.dev/ichor/test/localstack"
)

// everyKind installs a machine with one patch that has a document of every kind that Talos has, and both sections, with
// their secrets from a Secret. The machine runs with all of it, and nothing differs. It stays like that.
func everyKind(t *testing.T, s *suite) {
	examples, err := documents.All()
	if err != nil {
		t.Fatal(err)
	}
	values := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "examples", Labels: map[string]string{v1alpha1.PatchValuesLabel: "true"}}, StringData: documents.Secrets(),
	}
	if _, err := s.kubernetes.CoreV1().Secrets(v1alpha1.SystemNamespace).Create(t.Context(), values, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The oldest Talos that knows every kind.
	s.intend(t, map[string]any{"talosVersion": localstack.TalosVersion, "kubernetesVersion": localstack.KubernetesVersion})
	m := s.take(t, 1)[0]
	all := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "every-kind"}}
	all.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, MachineNames: []string{m.Name}}
	var kinds []string
	for _, example := range examples {
		if example.Kind == documents.Approved {
			continue // approval decides it
		}
		patch, err := example.Patch()
		if err != nil {
			t.Fatal(err)
		}
		switch example.Kind {
		case documents.Machine:
			all.Spec.Machine = patch.Spec.Machine
		case documents.Cluster:
			all.Spec.Cluster = patch.Spec.Cluster
		default:
			kinds = append(kinds, example.Kind)
			all.Spec.Documents = append(all.Spec.Documents, patch.Spec.Documents...)
		}
		all.Spec.SecretValues = append(all.Spec.SecretValues, patch.Spec.SecretValues...)
	}
	if _, err := s.admin.IchorV1alpha1().TalosConfigPatches().Create(t.Context(), all, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
	s.approve(t, s.operator, m.Name, v1alpha1.RoleWorker, "every-kind")
	s.waitReady(t, 4*time.Minute, m.Name)
	running := s.running(t, m)
	for _, kind := range kinds {
		if !bytes.Contains(running, []byte("kind: "+kind+"\n")) {
			t.Errorf("the machine runs without %s", kind)
		}
	}
	for key, value := range documents.Secrets() {
		if !strings.Contains(value, "\n") && !bytes.Contains(running, []byte(value)) {
			t.Errorf("the value %s of the Secret isn't in what the machine runs", key)
		}
	}
	eventually(t, time.Minute, func() error {
		is := s.get(t, m.Name)
		config, drift := is.Status.Config, condition(is.Status.Conditions, v1alpha1.ConditionDriftDetected)
		if config == nil || config.DriftCount > 0 || config.PendingReboot || drift.Reason != v1alpha1.ReasonInSync || len(config.Patches) != 1 {
			return fmt.Errorf("its configuration is %+v, and said to be %+v", config, drift)
		}
		return nil
	})
	if sent := len(s.applies(t, m)); sent != 1 {
		t.Errorf("the machine was sent %d configurations, want one", sent)
	}
}
