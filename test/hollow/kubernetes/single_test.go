// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"maesh.dev/ichor/test/hollow/kubernetes"
	"maesh.dev/ichor/test/hollow/kubernetes/configtest"
	"maesh.dev/ichor/test/hollow/workload"
)

const inlineManifest = `
cluster:
  inlineManifests:
  - name: greeting
    contents: |
      apiVersion: v1
      kind: Namespace
      metadata: {name: greeting}
      ---
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: hello, namespace: greeting}
      data: {text: hello}
`

// One story, for each chapter needs the cluster of the one before: starting another costs half a minute.
func TestTheLifeOfASingleControlPlane(t *testing.T) {
	block := claim(t)
	cluster := configtest.New(t, endpoint(block.Addr(1)))
	factory := newFactory(t, func(o *kubernetes.Options) { o.LeaseEvery, o.Pods = 2*time.Second, true })
	cp := newBox(t, factory, "cp-1", block.Addr(1), cluster.ControlPlane(t, inlineManifest))

	cp.boot(t)

	t.Run("it waits in Preparing until it is bootstrapped", func(t *testing.T) {
		cp.wait(t, "etcd prepares", func(s workload.Status) bool { return service(s, "etcd").State == "Preparing" })
		cp.wait(t, "trustd serves", func(s workload.Status) bool { return service(s, "trustd").Healthy })
		etcdCallsHang(t, cp)
	})

	t.Run("bootstrapped, it becomes ready", func(t *testing.T) {
		cp.bootstrap(t, &machine.BootstrapRequest{})
		cp.wait(t, "up", isUp)

		if err := cp.runtime.Bootstrap(t.Context(), &machine.BootstrapRequest{}); status.Code(err) != codes.AlreadyExists {
			t.Errorf("second bootstrap: got %v, want AlreadyExists", err)
		}
	})

	t.Run("the Node is dressed as on Talos", func(t *testing.T) { nodeIsDressed(t, cp) })
	t.Run("static pods are mirrored", func(t *testing.T) { podsAreMirrored(t, cp, "1", "v1.36.1") })
	t.Run("inline manifests are applied", func(t *testing.T) {
		client, _ := cp.client(t)
		waitUntil(t, "inline manifest", func() error {
			_, err := client.CoreV1().ConfigMaps("greeting").Get(t.Context(), "hello", metav1.GetOptions{})

			return err
		})
	})
	t.Run("an API behind an external name is accepted", func(t *testing.T) { apiServiceIsAccepted(t, cp) })
	t.Run("the audit log is written", func(t *testing.T) { auditLogIsWritten(t, cp) })
	t.Run("secrets are encrypted in etcd", func(t *testing.T) { secretsAreEncrypted(t, cp) })
	t.Run("etcd answers as on Talos", func(t *testing.T) { etcdAnswers(t, cp) })

	t.Run("a worker joins with the bootstrap token", func(t *testing.T) {
		worker := newBox(t, factory, "worker-1", block.Addr(2), cluster.Worker(t))
		worker.boot(t)
		worker.wait(t, "up", isUp)

		client, _ := cp.client(t)

		node, err := client.CoreV1().Nodes().Get(t.Context(), "worker-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		if len(node.Spec.Taints) > 0 && node.Spec.Taints[0].Key != corev1.TaintNodeNotReady {
			t.Errorf("taints of the worker: got %v, want none of its own", node.Spec.Taints)
		}

		if err = worker.runtime.Bootstrap(t.Context(), &machine.BootstrapRequest{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("bootstrap of a worker: got %v, want Unimplemented", err)
		}

		// The certificate on its disk outlives a reboot: no second request.
		worker.stop(t, false)
		waitUntil(t, "worker says goodbye", func() error { return wantReady(t, cp, "worker-1", corev1.ConditionFalse) })
		worker.boot(t)
		worker.wait(t, "up again", isUp)

		requests, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		if len(requests.Items) != 2 {
			t.Errorf("certificate requests of two nodes: got %d, want 2", len(requests.Items))
		}

		// A Node that somebody deleted stays away until its kubelet starts again.
		if err = client.CoreV1().Nodes().Delete(t.Context(), "worker-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		worker.wait(t, "deletion noticed", func(s workload.Status) bool { return !s.NodeRegistered && !s.NodeReady })
		worker.stop(t, true)
		worker.boot(t)
		worker.wait(t, "registered again", isUp)
		podsRun(t, cp, worker)
	})

	t.Run("a changed image restarts what it belongs to", func(t *testing.T) { imagesChange(t, cp, cluster) })

	t.Run("data survives a power cut", func(t *testing.T) {
		cp.stop(t, true)
		cp.boot(t)
		cp.wait(t, "up again", isUp)

		client, _ := cp.client(t)

		if _, err := client.CoreV1().ConfigMaps("greeting").Get(t.Context(), "hello", metav1.GetOptions{}); err != nil {
			t.Errorf("read what was stored before the power cut: %v", err)
		}

		waitUntil(t, "new boot id", func() error {
			node, err := client.CoreV1().Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
			if err == nil && node.Status.NodeInfo.BootID != cp.machine.BootID {
				err = fmt.Errorf("boot id is %s, want %s", node.Status.NodeInfo.BootID, cp.machine.BootID)
			}

			return err
		})
	})

	t.Run("a snapshot brings an emptied node back", func(t *testing.T) { snapshotIsRestored(t, cp) })

	t.Run("an orderly stop leaves no key behind", func(t *testing.T) {
		cp.stop(t, false)

		left, err := filepath.Glob(filepath.Join(filepath.Dir(cp.machine.EphemeralDir), "run-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("folders of keys after the stop: got %v (%v), want none", left, err)
		}
	})
}

// etcdCallsHang: a node whose etcd isn't up answers nothing until the caller's deadline (real-node/notes.md).
func etcdCallsHang(t *testing.T, cp *box) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if _, err := cp.runtime.EtcdStatus(ctx); status.Code(err) != codes.DeadlineExceeded && ctx.Err() == nil {
		t.Errorf("status of etcd that is down: got %v before the deadline, want the deadline", err)
	}
}

func nodeIsDressed(t *testing.T, cp *box) {
	t.Helper()

	client, _ := cp.client(t)

	var node *corev1.Node

	waitUntil(t, "labels applied", func() (err error) {
		node, err = client.CoreV1().Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
		if err == nil && node.Annotations["talos.dev/owned-labels"] == "" {
			err = fmt.Errorf("annotations are %v", node.Annotations)
		}

		return err
	})

	type facts struct {
		ControlPlane   bool
		Hostname       string
		Taints         []corev1.Taint
		Addresses      []corev1.NodeAddress
		OS, Kubelet    string
		OwnedTaints    string
		CPUs, MemoryGi int64
	}

	_, isControlPlane := node.Labels["node-role.kubernetes.io/control-plane"]
	got := facts{
		isControlPlane, node.Labels["kubernetes.io/hostname"],
		slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeNotReady }),
		node.Status.Addresses, node.Status.NodeInfo.OSImage, node.Status.NodeInfo.KubeletVersion,
		node.Annotations["talos.dev/owned-taints"],
		node.Status.Capacity.Cpu().Value(), node.Status.Capacity.Memory().Value() >> 30,
	}
	want := facts{
		true, "cp-1",
		[]corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}},
		[]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: cp.machine.Address.String()}, {Type: corev1.NodeHostName, Address: "cp-1"}},
		"Talos (v1.13.9)", "v1.36.1", `["node-role.kubernetes.io/control-plane"]`, 4, 8,
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

func podsAreMirrored(t *testing.T, cp *box, configVersion, tag string) {
	t.Helper()

	client, _ := cp.client(t)

	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		want := []string{"Running", "True", tag, cp.machine.Address.String()}
		if name == "kube-apiserver" {
			want = append(want, configVersion)
		}

		waitUntil(t, "mirror of "+name, func() error {
			pods, err := client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=" + name})
			if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != name+"-cp-1" {
				return fmt.Errorf("pods of %s: %v, %w", name, pods, err)
			}

			pod := pods.Items[0]
			image := pod.Spec.Containers[0].Image
			got := []string{string(pod.Status.Phase), podReady(pod), image[strings.LastIndex(image, ":")+1:], pod.Status.HostIP}

			if name == "kube-apiserver" {
				got = append(got, pod.Annotations["talos.dev/config-version"])
			}

			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("pod %s (-want +got):\n%s", pod.Name, diff)
			}

			return nil
		})
	}
}

func podReady(pod corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return string(condition.Status)
		}
	}

	return "missing"
}

func wantReady(t *testing.T, cp *box, name string, want corev1.ConditionStatus) error {
	t.Helper()

	client, _ := cp.client(t)

	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}

	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != want {
			return fmt.Errorf("node %s is Ready=%s (%s), want %s", name, condition.Status, condition.Message, want)
		}
	}

	return nil
}

func apiServiceIsAccepted(t *testing.T, cp *box) {
	t.Helper()

	_, restConfig := cp.client(t)

	restClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(restClient.CloseIdleConnections)

	for path, body := range map[string]string{
		"/api/v1/namespaces/default/services": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"outside"},
			"spec":{"type":"ExternalName","externalName":"localhost","ports":[{"port":6444}]}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService",
			"metadata":{"name":"v1.outside.example.org"},"spec":{"group":"outside.example.org","version":"v1",
			"groupPriorityMinimum":1000,"versionPriority":10,"insecureSkipTLSVerify":true,
			"service":{"name":"outside","namespace":"default","port":6444}}}`,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, restConfig.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}

		request.Header.Set("Content-Type", "application/json")

		response, err := restClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}

		response.Body.Close() //nolint:errcheck // only the status counts

		if response.StatusCode != http.StatusCreated {
			t.Errorf("create at %s: got %s, want 201", path, response.Status)
		}
	}
}

func auditLogIsWritten(t *testing.T, cp *box) {
	t.Helper()

	waitUntil(t, "audit log tells of the administrator", func() error {
		content, err := os.ReadFile(filepath.Join(cp.machine.LogDir, "audit.log"))
		if err != nil {
			return err
		}

		for line := range bytes.Lines(content) {
			var event struct {
				Verb string
				User struct{ Username string }
			}

			if err = json.Unmarshal(line, &event); err == nil && event.User.Username == "admin" && event.Verb == "create" {
				return nil
			}
		}

		return fmt.Errorf("no such event in %d bytes", len(content))
	})
}

func secretsAreEncrypted(t *testing.T, cp *box) {
	t.Helper()

	const canary = "plain-text-canary-7231"

	client, _ := cp.client(t)

	_, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "canary"}, StringData: map[string]string{"word": canary},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	var snapshot bytes.Buffer
	if err = cp.runtime.EtcdSnapshot(t.Context(), &snapshot); err != nil {
		t.Fatal(err)
	}

	if !bytes.Contains(snapshot.Bytes(), []byte("/registry/secrets/default/canary")) {
		t.Error("the snapshot lacks the secret")
	}

	if bytes.Contains(snapshot.Bytes(), []byte(canary)) {
		t.Error("the snapshot holds the secret's word in the clear")
	}
}

func etcdAnswers(t *testing.T, cp *box) {
	t.Helper()

	for _, local := range []bool{true, false} {
		members, err := cp.runtime.EtcdMemberList(t.Context(), &machine.EtcdMemberListRequest{QueryLocal: local})
		if err != nil {
			t.Fatal(err)
		}

		if len(members.GetMembers()) != 1 || members.GetMembers()[0].GetHostname() != "cp-1" || members.GetMembers()[0].GetIsLearner() {
			t.Errorf("members (local %v): got %v, want the voter cp-1", local, members)
		}

		if members.GetMembers()[0].GetId() != cp.current().EtcdMemberID {
			t.Errorf("member id: got %x, want %x", members.GetMembers()[0].GetId(), cp.current().EtcdMemberID)
		}
	}

	state, err := cp.runtime.EtcdStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if state.GetLeader() != state.GetMemberId() || state.GetDbSize() == 0 || state.GetStorageVersion() == "" {
		t.Errorf("status: got %v, want a leader with data", state)
	}

	alarms, err := cp.runtime.EtcdAlarmList(t.Context())
	if err != nil || len(alarms) != 0 {
		t.Errorf("alarms: got %v, %v, want none", alarms, err)
	}

	if err = cp.runtime.EtcdDefragment(t.Context()); err != nil {
		t.Error(err)
	}

	if err = cp.runtime.EtcdRemoveMemberByID(t.Context(), 42); status.Code(err) != codes.NotFound {
		t.Errorf("removing an unknown member: got %v, want NotFound", err)
	}

	if _, err = cp.runtime.EtcdForfeitLeadership(t.Context()); err == nil || !strings.Contains(err.Error(), "only one member") {
		t.Errorf("forfeiting alone: got %v, want a refusal", err)
	}

	if err = cp.runtime.EtcdLeaveCluster(t.Context()); err == nil {
		t.Error("the sole member left the cluster, want a refusal for the sake of the quorum")
	}
}

func imagesChange(t *testing.T, cp *box, cluster *configtest.Cluster) {
	t.Helper()

	changed := cluster.ControlPlane(t, inlineManifest, `
machine:
  kubelet: {image: "ghcr.io/siderolabs/kubelet:v1.36.2"}
cluster:
  apiServer: {image: "registry.k8s.io/kube-apiserver:v1.36.2"}
  controllerManager: {image: "registry.k8s.io/kube-controller-manager:v1.36.2"}
  scheduler: {image: "registry.k8s.io/kube-scheduler:v1.36.2"}
`)

	cp.mu.Lock()
	cp.history = nil
	cp.mu.Unlock()

	cp.machine.Config = changed
	cp.runtime.UpdateConfig(changed)

	podsAreMirrored(t, cp, "2", "v1.36.2")

	client, _ := cp.client(t)
	waitUntil(t, "node tells the kubelet's version", func() error {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
		if err == nil && node.Status.NodeInfo.KubeletVersion != "v1.36.2" {
			err = fmt.Errorf("kubelet version is %s", node.Status.NodeInfo.KubeletVersion)
		}

		return err
	})
	cp.wait(t, "up again", isUp)

	cp.mu.Lock()
	defer cp.mu.Unlock()

	if !slices.ContainsFunc(cp.history, func(s workload.Status) bool { return !service(s, "kubelet").Running }) {
		t.Error("the kubelet's restart was not seen")
	}
}

func snapshotIsRestored(t *testing.T, cp *box) {
	t.Helper()

	var snapshot bytes.Buffer
	if err := cp.runtime.EtcdSnapshot(t.Context(), &snapshot); err != nil {
		t.Fatal(err)
	}

	cp.stop(t, true)
	cp.wipe(t)
	cp.boot(t)
	cp.wait(t, "etcd prepares", func(s workload.Status) bool { return service(s, "etcd").State == "Preparing" })

	if err := cp.runtime.EtcdRecover(t.Context(), &snapshot); err != nil {
		t.Fatal(err)
	}

	cp.bootstrap(t, &machine.BootstrapRequest{RecoverEtcd: true})
	cp.wait(t, "up again", isUp)

	client, _ := cp.client(t)

	if _, err := client.CoreV1().ConfigMaps("greeting").Get(t.Context(), "hello", metav1.GetOptions{}); err != nil {
		t.Errorf("read what the snapshot holds: %v", err)
	}
}
