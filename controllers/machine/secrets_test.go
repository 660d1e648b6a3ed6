// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/talos/talostest"
)

// secretsOf are all secrets of the bundle, and some further ones, in the forms in which they could be written: as they are,
// in base64, and of keys what is between the lines that say what it is.
func (s *stack) secretsOf(more ...string) map[string]string {
	bundle := s.bundle.Talos()
	plain := map[string][]byte{
		"the machines' token": []byte(bundle.TrustdInfo.Token), "the bootstrap token": []byte(bundle.Secrets.BootstrapToken),
		"the cluster's secret": []byte(bundle.Cluster.Secret), "the secretbox key": []byte(bundle.Secrets.SecretboxEncryptionSecret),
		"the key of Talos' CA": bundle.Certs.OS.Key, "the key of Kubernetes' CA": bundle.Certs.K8s.Key, "the key of etcd's CA": bundle.Certs.Etcd.Key,
		"the key of the aggregator's CA": bundle.Certs.K8sAggregator.Key, "the key of service accounts": bundle.Certs.K8sServiceAccount.Key,
	}
	for i, value := range more {
		plain[fmt.Sprintf("value %d of a Secret", i)] = []byte(value)
	}
	forms := map[string]string{}
	for name, secret := range plain {
		forms[name] = string(secret)
		forms[name+" in base64"] = base64.StdEncoding.EncodeToString(secret)
		if block, _ := pem.Decode(secret); block != nil {
			forms[name+" without its frame"] = base64.StdEncoding.EncodeToString(block.Bytes)[:40]
		}
	}
	return forms
}

// said is everything that was written to the API so far, events included.
func (s *stack) said() string {
	s.t.Helper()
	var all []string
	for _, action := range s.api.Actions() {
		written, ok := action.(interface{ GetObject() runtime.Object }) // to create and to update
		if !ok {
			continue
		}
		text, err := json.Marshal(written.GetObject())
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(append(all, s.drained()...), "\n")
}

// Whatever becomes of a machine (it gets a patch with values of Secrets, somebody changes its keys and those values by hand,
// it refuses, something can't be rendered), no secret is in any object that is written, nor in an event.
func TestNoSecretIsWrittenAnywhere(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	machine, worker := s.add(11, controlPlane), s.add(12)
	ctx := context.Background()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy", Namespace: v1alpha1.SystemNamespace, Labels: map[string]string{v1alpha1.PatchValuesLabel: "true"}},
		Data:       map[string][]byte{"password": []byte("kept-secret-password")},
	}
	if _, err := s.kube.CoreV1().Secrets(v1alpha1.SystemNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	withSecret := func(path string) func(*v1alpha1.TalosConfigPatch) {
		return func(p *v1alpha1.TalosConfigPatch) {
			p.Spec.SecretValues = []v1alpha1.SecretValue{{Path: path, SecretKeyRef: v1alpha1.SecretKeyReference{Name: "proxy", Key: "password"}}}
		}
	}
	s.patch("proxy", `{"nodeLabels":{"a":"b"}}`, withSecret("/machine/nodeAnnotations/token"))
	s.settle(machine, worker)
	look := func() {
		for _, name := range []string{machine, worker} {
			_, _ = s.reconcile(name)
		}
		s.clock.Step(time.Minute)
	}
	for _, name := range []string{machine, worker} {
		s.live(name)
		s.byHand(name, "kept-secret-password", "kept-secret-by-hand")
		s.byHand(name, s.bundle.Talos().TrustdInfo.Token, "abcdef.0123456789abcdef")
	}
	look()
	for _, name := range []string{machine, worker} {
		if config := s.get(name).Status.Config; config.DriftCount < 2 {
			t.Errorf("%s: %d places differ, so the test shows nothing", name, config.DriftCount)
		}
	}
	for _, name := range []string{machine, worker} {
		s.machines[name].Do(func(state *talostest.State) { state.Fault = talostest.Refuse })
	}
	s.patch("proxy", `{"nodeLabels":{"a":"c"}}`, withSecret("/machine/nodeAnnotations/other"))
	look()
	s.patch("wrong", `{"sysctls":{"a.b":"1"}}`, withSecret("/machine/nodeLabels/tier"))
	secret.Data["password"] = []byte("kept-secret: no label!")
	if _, err := s.kube.CoreV1().Secrets(v1alpha1.SystemNamespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	look()
	s.unpatch("wrong")
	s.unpatch("proxy")
	look()
	said := s.said()
	for name, form := range s.secretsOf("kept-secret-password", "kept-secret-by-hand", "kept-secret: no label!") {
		if strings.Contains(said, form) {
			t.Errorf("%s was written", name)
		}
	}
	if !strings.Contains(said, "would be refused by Talos") || !strings.Contains(said, `"want":"***"`) {
		t.Error("neither a refusal nor drift was written, so the test shows nothing")
	}
}
