// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/test/localstack"
)

// noSecretAnywhere looks for the cluster's secrets, and for a value that a patch takes from a Secret, in everything that is
// served, told, logged, audited or printed after all that was done before.
func noSecretAnywhere(t *testing.T, s *suite) {
	const value = "kept-in-a-Secret-of-the-story"
	secrets, patches := s.kubernetes.CoreV1().Secrets(v1alpha1.SystemNamespace), s.admin.IchorV1alpha1().TalosConfigPatches()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-values", Labels: map[string]string{v1alpha1.PatchValuesLabel: "true"}},
		StringData: map[string]string{"password": value},
	}
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	worker := s.readyWorker(t)
	patch := &v1alpha1.TalosConfigPatch{ObjectMeta: metav1.ObjectMeta{Name: "with-a-secret"}}
	patch.Spec.Target = v1alpha1.PatchTarget{ClusterRef: v1alpha1.ClusterReference{Name: localstack.ClusterName}, MachineNames: []string{worker.Name}}
	patch.Spec.Machine = &v1alpha1.MachineSection{Raw: []byte(`{"nodeAnnotations":{"e2e":"yes"}}`)}
	patch.Spec.SecretValues = []v1alpha1.SecretValue{{Path: "/machine/nodeAnnotations/password", SecretKeyRef: v1alpha1.SecretKeyReference{Name: secret.Name, Key: "password"}}}
	if _, err := patches.Create(t.Context(), patch, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error {
		if !bytes.Contains(s.running(t, worker), []byte(value)) {
			return errors.New("the patch's value doesn't reach the machine")
		}
		return nil
	})
	// Somebody changes it by hand: what differs is listed, without either value.
	s.changeByHand(t, worker, value, value+"-by-hand")
	eventually(t, 2*time.Minute, func() error {
		if s.get(t, worker.Name).Status.Config.DriftCount == 0 {
			return errors.New("the change by hand isn't seen")
		}
		return nil
	})

	forms := s.secretForms(t)
	forms["the value of a Secret"] = value
	said := s.everythingSaid(t)
	for _, place := range slices.Sorted(maps.Keys(said)) {
		for name, form := range forms {
			if bytes.Contains(said[place], []byte(form)) {
				t.Errorf("%s is in %s", name, place)
			}
		}
	}
	if len(forms) < 19 || len(said) < 40 {
		t.Errorf("%d forms of secrets were looked for in %d places, so this shows nothing", len(forms), len(said))
	}
	// Where secrets would be, their masks are.
	for _, place := range []string{"talosmachines/" + worker.Name + "/config provenance true", "ichor machine config " + worker.Name, "talosmachines/" + worker.Name + "/drift"} {
		if !bytes.Contains(said[place], []byte("***")) {
			t.Errorf("nothing is masked in %s, so this shows nothing: %.300s", place, said[place])
		}
	}
	if err := patches.Delete(t.Context(), patch.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// secretForms are the secrets of the bundle as they could be written: as they are, in base64, and of keys a line out of the
// middle of their text.
func (s *suite) secretForms(t *testing.T) map[string]string {
	t.Helper()
	bundle, err := secretsbundle.Store{Secrets: s.kubernetes.CoreV1()}.LoadFor(t.Context(), s.cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	parts := bundle.Talos()
	forms := map[string]string{}
	for name, secret := range map[string]string{
		"the machines' token": parts.TrustdInfo.Token, "the bootstrap token": parts.Secrets.BootstrapToken,
		"the cluster's secret": parts.Cluster.Secret, "the secretbox key": parts.Secrets.SecretboxEncryptionSecret,
		"the key of Talos' CA": string(parts.Certs.OS.Key), "the key of Kubernetes' CA": string(parts.Certs.K8s.Key),
		"the key of etcd's CA": string(parts.Certs.Etcd.Key), "the key of the aggregator's CA": string(parts.Certs.K8sAggregator.Key),
		"the key of service accounts": string(parts.Certs.K8sServiceAccount.Key),
	} {
		encoded := base64.StdEncoding.EncodeToString([]byte(secret))
		forms[name+" in base64"] = encoded[len(encoded)/3 : len(encoded)*2/3]
		lines := strings.Split(strings.TrimSpace(secret), "\n")
		forms[name] = lines[len(lines)/2]
	}
	return forms
}

// everythingSaid is all that people and programs can read, by where.
func (s *suite) everythingSaid(t *testing.T) map[string][]byte {
	t.Helper()
	said := map[string][]byte{}
	admin := s.admin.IchorV1alpha1().RESTClient()
	const group = "/apis/ichor.maesh.dev/v1alpha1/"
	get := func(path string, params ...string) []byte {
		t.Helper()
		request := admin.Get().AbsPath(group + path)
		for i := 0; i < len(params); i += 2 {
			request = request.Param(params[i], params[i+1])
		}
		text, err := request.Do(t.Context()).Raw()
		if err != nil {
			text = []byte(err.Error()) // a machine that isn't approved has no configuration; the refusal is read, too
		}
		said[strings.Join(append([]string{path}, params...), " ")] = text
		return text
	}
	var served metav1.APIResourceList
	if err := json.Unmarshal(get(""), &served); err != nil {
		t.Fatal(err)
	}
	for _, resource := range served.APIResources {
		if !strings.Contains(resource.Name, "/") && slices.Contains(resource.Verbs, "list") {
			get(resource.Name)
		}
	}
	var machines v1alpha1.TalosMachineList
	if err := json.Unmarshal(said["talosmachines"], &machines); err != nil {
		t.Fatal(err)
	}
	kubeconfig := s.stack.Dir().Kubeconfig()
	printed := func(args ...string) {
		t.Helper()
		r := s.run(t, kubeconfig, "ichor", args...)
		said["ichor "+strings.Join(args, " ")] = []byte(r.out + r.err)
	}
	for _, m := range machines.Items {
		if m.Spec.ApprovalState != v1alpha1.ApprovalApproved {
			continue
		}
		get("talosmachines/"+m.Name+"/config", "provenance", "true")
		get("talosmachines/" + m.Name + "/drift")
		var history v1alpha1.TalosMachineHistory
		if err := json.Unmarshal(get("talosmachines/"+m.Name+"/history"), &history); err != nil {
			continue
		}
		for _, revision := range history.Revisions {
			get("talosmachines/"+m.Name+"/history", "revision", fmt.Sprint(revision.Revision))
		}
		printed("machine", "show", m.Name, "-o", "yaml")
		printed("machine", "config", m.Name)
		printed("machine", "config", "diff", m.Name)
		printed("machine", "drift", m.Name)
	}
	printed("status")
	printed("patch", "show", "with-a-secret")
	printed("patch", "list", "-o", "yaml")
	printed("cluster", "show", localstack.ClusterName)
	events, err := s.kubernetes.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if said["events"], err = json.Marshal(events); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(s.stack.Dir().Logs(), "ichor-*"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range s.stack.Replicas() {
		logs = append(logs, s.stack.APIServerAuditLog(n))
	}
	for _, path := range append(logs, s.stack.Dir().AuditLog()) {
		if said[filepath.Base(path)+" in "+filepath.Dir(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return said
}
