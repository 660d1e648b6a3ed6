// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"maesh.dev/ichor/test/apiserver/harness"
)

// kubectlFor bounds one command.
const kubectlFor = 2 * time.Minute

// kubectl is the real kubectl, which `make build` puts there, speaking to a server as its admin.
type kubectl struct {
	t          *testing.T
	program    string
	kubeconfig string
}

func (w *world) kubectl(t *testing.T) *kubectl {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", "kubectl")) // a test runs in its own folder
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; make build makes it", err)
	}
	config := w.Config(0, harness.Admin)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "admin"}},
		CurrentContext: "test",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return &kubectl{t, program, kubeconfig}
}

// said is what a command said, and how it ended.
type said struct {
	out, err string
	status   int
}

func (k *kubectl) command(ctx context.Context, editor string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, k.program, args...)
	home := filepath.Dir(k.kubeconfig) // the cache of discovery goes there
	c.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig, "HOME="+home, "KUBECACHEDIR="+filepath.Join(home, "cache"), "KUBE_EDITOR="+editor)
	return c
}

func (k *kubectl) run(editor, input string, args ...string) said {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), kubectlFor)
	defer cancel()
	c := k.command(ctx, editor, args...)
	c.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		k.t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return said{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// must runs a command that has to succeed.
func (k *kubectl) must(args ...string) string {
	k.t.Helper()
	return k.mustWith("", "", args...)
}

func (k *kubectl) mustWith(editor, input string, args ...string) string {
	k.t.Helper()
	s := k.run(editor, input, args...)
	if s.status != 0 {
		k.t.Fatalf("kubectl %s: status %d\n%s%s", strings.Join(args, " "), s.status, s.out, s.err)
	}
	return s.out
}

// refused runs a command that has to be refused with the words.
func (k *kubectl) refused(words string, args ...string) {
	k.t.Helper()
	if s := k.run("", "", args...); s.status == 0 || !strings.Contains(s.err, words) {
		k.t.Errorf("kubectl %s: status %d, want a refusal that says %q\n%s%s", strings.Join(args, " "), s.status, words, s.out, s.err)
	}
}

// age is the last column but the wide ones.
var age = regexp.MustCompile(`\b(\d+[smh])+\b`)

func TestKubectlGetAndExplainOfEveryKind(t *testing.T) {
	t.Parallel()
	env := harness.Start(t)
	w := &world{Env: env}
	k := w.kubectl(t)
	var all []string
	for _, object := range examples(t) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		k.mustWith("", string(text), "create", "-f", "-")
		if name := resources[object.GetKind()]; !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if got := k.must("get", "ichor", "-o", "name"); strings.Count(got, "\n") != len(examples(t)) {
		t.Errorf("kubectl get ichor lists %s, want an object of each of %v", got, slices.Sorted(maps.Values(resources)))
	}
	slices.Sort(all)
	if want := slices.Sorted(maps.Values(resources)); !slices.Equal(all, want) {
		t.Errorf("there are examples of %v, want of %v", all, want)
	}
	var tables strings.Builder
	for _, name := range all {
		for _, args := range [][]string{{"get", name}, {"get", name, "-o", "wide"}} {
			out := age.ReplaceAllString(k.must(args...), "AGE")
			tables.WriteString("$ kubectl " + strings.Join(args, " ") + "\n" + regexp.MustCompile(` {2,}`).ReplaceAllString(out, "  "))
		}
		golden(t, "../explain/"+name+".txt", []byte(k.must("explain", name, "--recursive")))
	}
	golden(t, "../tables.txt", []byte(tables.String()))
}
