// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/test/hollow/kubernetes/configtest"
	"maesh.dev/ichor/test/hollow/kubernetes/controlplane"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

func layout(t *testing.T) controlplane.Layout {
	t.Helper()

	dir := t.TempDir()

	return controlplane.Layout{
		Node:      pki.Identity{Hostname: "cp-1", Address: netip.MustParseAddr("127.0.20.1")},
		ConfigDir: pki.Folder(filepath.Join(dir, "config")),
		Files:     pki.KubernetesFiles{ServiceAccountKey: "/run/sa.key", CA: "/run/ca.crt"},
		AuditLog:  "/logs/audit.log", VarDir: filepath.Join(dir, "var"),
	}
}

// flag returns the values of a flag.
func flag(args []string, name string) []string {
	var values []string

	for _, arg := range args {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			values = append(values, value)
		}
	}

	return values
}

func TestFlagsOfTheAPIServer(t *testing.T) {
	t.Parallel()

	cluster := configtest.New(t, "https://cluster.example.org:6443")

	for _, test := range []struct {
		name, patch string
		want        map[string][]string
		wantErr     string
	}{
		{
			name: "without extra arguments",
			want: map[string][]string{
				"bind-address":             {"127.0.20.1"},
				"service-account-issuer":   {"https://cluster.example.org:6443"},
				"anonymous-auth":           {"false"},
				"enable-admission-plugins": {"NodeRestriction"},
				"endpoint-reconciler-type": {"none"},
				"audit-log-path":           {"/logs/audit.log"},
				"authorization-mode":       nil,
				"etcd-servers":             {"https://127.0.20.1:2379"},
			},
		},
		{
			name:  "admission plugins are added to Talos' own",
			patch: "cluster: {apiServer: {extraArgs: {enable-admission-plugins: AlwaysPullImages}}}",
			want:  map[string][]string{"enable-admission-plugins": {"NodeRestriction,AlwaysPullImages"}},
		},
		{
			name:  "an audit log below /var lies on the machine's own disk",
			patch: "cluster: {apiServer: {extraArgs: {audit-log-path: /var/log/audit/kube/audit.log}}}",
			want:  map[string][]string{"audit-log-path": {"VAR/log/audit/kube/audit.log"}},
		},
		{
			name:  "authorization by flags excludes the file",
			patch: "cluster: {apiServer: {extraArgs: {authorization-mode: Webhook}}}",
			want:  map[string][]string{"authorization-mode": {"Node,RBAC,Webhook"}, "authorization-config": nil},
		},
		{
			name:    "the service account key can't be replaced",
			patch:   "cluster: {apiServer: {extraArgs: {service-account-key-file: /mine}}}",
			wantErr: `flags of kube-apiserver: extra arg "service-account-key-file" is not allowed`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			where := layout(t)

			component, err := controlplane.APIServer(patched(t, cluster, test.patch).Cluster(), where)
			if test.wantErr != "" {
				if err == nil || err.Error() != test.wantErr {
					t.Fatalf("got %v, want %s", err, test.wantErr)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}

			for name, want := range test.want {
				got := flag(component.Args, name)
				for i := range got {
					got[i] = strings.Replace(got[i], where.VarDir, "VAR", 1)
				}

				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("--%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

func patched(t *testing.T, cluster *configtest.Cluster, patch string) config.Provider {
	t.Helper()

	if patch == "" {
		return cluster.ControlPlane(t)
	}

	return cluster.ControlPlane(t, patch)
}

func TestConfigurationFilesOfTheAPIServer(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://127.0.20.1:6443").ControlPlane(t)

	component, err := controlplane.APIServer(cfg.Cluster(), layout(t))
	if err != nil {
		t.Fatal(err)
	}

	read := func(name string) map[string]any {
		content, readErr := os.ReadFile(flag(component.Args, name)[0])
		if readErr != nil {
			t.Fatal(readErr)
		}

		file := map[string]any{}
		if readErr = yaml.Unmarshal(content, &file); readErr != nil {
			t.Fatal(readErr)
		}

		return file
	}

	if diff := cmp.Diff([]any{
		map[string]any{"type": "Node", "name": "node"}, map[string]any{"type": "RBAC", "name": "rbac"},
	}, read("authorization-config")["authorizers"]); diff != "" {
		t.Errorf("authorizers (-want +got):\n%s", diff)
	}

	if got := read("audit-policy-file")["kind"]; got != "Policy" {
		t.Errorf("audit policy is a %v", got)
	}

	providers := read("encryption-provider-config")["resources"].([]any)[0].(map[string]any)["providers"].([]any)
	if _, found := providers[0].(map[string]any)["secretbox"]; !found || len(providers) != 2 {
		t.Error("secrets are not encrypted with secretbox first and identity last")
	}

	if got := read("admission-control-config-file")["plugins"].([]any)[0].(map[string]any)["name"]; got != "PodSecurity" {
		t.Errorf("first admission plugin: got %v, want PodSecurity", got)
	}
}

func TestWhatMakesAComponentStartAgain(t *testing.T) {
	t.Parallel()

	cluster := configtest.New(t, "https://127.0.20.1:6443")
	where := layout(t)

	fingerprint := func(patch string) string {
		component, err := controlplane.APIServer(patched(t, cluster, patch).Cluster(), where)
		if err != nil {
			t.Fatal(err)
		}

		return component.Fingerprint
	}

	before := fingerprint("")

	for _, test := range []struct {
		name, patch string
		want        bool
	}{
		{"nothing changed", "", false},
		{"a node label", "machine: {nodeLabels: {rack: a}}", false},
		{"another image", "cluster: {apiServer: {image: 'registry.k8s.io/kube-apiserver:v1.36.9'}}", true},
		{"an extra argument", "cluster: {apiServer: {extraArgs: {v: '4'}}}", true},
		{"another name in its certificate", "cluster: {apiServer: {certSANs: [more.example.org]}}", true},
		{"an environment variable", "cluster: {apiServer: {env: {A: b}}}", true},
		{"the audit policy", "cluster: {apiServer: {auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}}}", true},
	} {
		if got := fingerprint(test.patch) != before; got != test.want {
			t.Errorf("%s: starts again: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestTheControllerManagerRunsWhatIsNeededAndWhatIsAskedFor(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://127.0.20.1:6443").ControlPlane(t, `
cluster: {controllerManager: {extraArgs: {bind-address: 0.0.0.0, controllers: job-controller}}}`)

	where := layout(t)
	where.Controllers = []string{"daemonset-controller"}

	component, err := controlplane.Manager(cfg.Cluster(), where)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"127.0.20.1"}, flag(component.Args, "bind-address")); diff != "" {
		t.Errorf("bind address (-want +got):\n%s", diff)
	}

	controllers := strings.Split(flag(component.Args, "controllers")[0], ",")
	for _, want := range []string{"node-lifecycle-controller", "daemonset-controller", "job-controller"} {
		if !slices.Contains(controllers, want) {
			t.Errorf("controllers %v lack %s", controllers, want)
		}
	}
}

func TestTheSchedulerListensAtItsOwnMachineAndTakesMoreArguments(t *testing.T) {
	t.Parallel()

	cfg := configtest.New(t, "https://127.0.20.1:6443").ControlPlane(t, `
cluster: {scheduler: {extraArgs: {bind-address: 0.0.0.0, v: '4'}}}`)

	where := layout(t)
	where.Files.SchedulerKubeconfig = "/run/scheduler.kubeconfig"

	component, err := controlplane.Scheduler(cfg.Cluster(), where)
	if err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{
		"bind-address": "127.0.20.1", "v": "4", "leader-elect": "true",
		"kubeconfig": where.Files.SchedulerKubeconfig, "authorization-kubeconfig": where.Files.SchedulerKubeconfig,
	} {
		if diff := cmp.Diff([]string{want}, flag(component.Args, name)); diff != "" {
			t.Errorf("--%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestManifests(t *testing.T) {
	t.Parallel()

	cluster := configtest.New(t, "https://127.0.20.1:6443")
	cfg := cluster.ControlPlane(t, `
cluster:
  inlineManifests:
  - {name: two, contents: "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n"}`)

	objects, err := controlplane.Manifests(cfg.Cluster())
	if err != nil {
		t.Fatal(err)
	}

	got := make([]string, len(objects))
	for i, object := range objects {
		got[i] = object.GetKind() + " " + object.GetName()
	}

	want := []string{
		"Secret bootstrap-token-" + cfg.Cluster().Token().ID(),
		"ClusterRoleBinding system-bootstrap-node-bootstrapper",
		"ClusterRoleBinding system-bootstrap-approve-node-client-csr",
		"ClusterRoleBinding system-bootstrap-node-renewal",
		"ConfigMap kubeconfig-in-cluster",
		"ClusterRole system:talos-nodes",
		"ClusterRoleBinding system:talos-nodes",
		"Namespace a", "Namespace b",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}

	broken := cluster.ControlPlane(t, `cluster: {inlineManifests: [{name: bad, contents: "a: ["}]}`)
	if _, err = controlplane.Manifests(broken.Cluster()); err == nil || !strings.Contains(err.Error(), `inline manifest "bad"`) {
		t.Errorf("broken manifest: got %v, want its name", err)
	}
}

func TestAStaticPodTellsItsVersions(t *testing.T) {
	t.Parallel()

	for image, want := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.36.1":                    "1.36.1",
		"registry.example.org:5000/kube-apiserver:v1.36.1@sha256:0": "1.36.1",
		"registry.example.org:5000/kube-apiserver":                  "",
	} {
		pod := controlplane.StaticPod(controlplane.Component{Name: controlplane.APIServerName, Image: image}, 7)

		got := []string{pod.Labels["app.kubernetes.io/version"], pod.Labels["k8s-app"], pod.Annotations["talos.dev/config-version"]}
		if diff := cmp.Diff([]string{want, "kube-apiserver", "7"}, got); diff != "" {
			t.Errorf("pod of %s (-want +got):\n%s", image, diff)
		}
	}
}
