// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/test/hollow/node"
)

const (
	// awayEnv is how long the API is away in the long form.
	awayEnv = "ICHOR_AWAY"
	// shortlyAway is how long it is otherwise.
	shortlyAway = time.Minute
	// namespacesFor bounds the end of namespaces that waited: the namespace controller tries again every minute at last.
	// Source: k8s.io/kubernetes, pkg/controller/namespace/namespace_controller.go.
	namespacesFor = 75 * time.Second
)

// apiAway ends every ichor-apiserver for a minute. Kubernetes works meanwhile, people are told what is wrong, and the
// controller, who sees nothing, does nothing. When it is back, namespaces that were deleted meanwhile finish within a
// minute, informers ask once for everything, and all is as before.
func apiAway(t *testing.T, s *suite) {
	away := shortlyAway
	if text := os.Getenv(awayEnv); text != "" {
		var err error
		if away, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", awayEnv, err)
		}
	}
	informer := s.startInformer(t)
	before := s.account(t)
	s.makeNamespaces(t, "away-1", "away-2")

	back := s.apiGone(t)
	left := time.Now()
	s.expectAwayInWords(t)
	s.deleteNamespaces(t, "away-1", "away-2")
	s.expectKubernetesWorks(t)
	after(t, away-time.Since(left))
	lists := informer.lists.Load()

	back()
	since := time.Now()
	eventually(t, namespacesFor, func() error { return s.gone(t, "away-1", "away-2") })
	t.Logf("the API was away for %s; the namespaces were gone %.1f s after it was back", away, time.Since(since).Seconds())
	eventually(t, 2*time.Minute, func() error { return informer.knows(s.machinesNow(t)) })
	if got := informer.lists.Load() - lists; got > 1 {
		t.Errorf("an informer asked %d times for all machines once the API was back, want once", got)
	}
	s.expectAccount(t, before)
}

// apiGone ends every ichor-apiserver, and returns how they come back; they do in any case when the story is over.
func (s *suite) apiGone(t *testing.T) (back func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound(stopFor))
	defer cancel()
	s.stack.StopAPIServers(ctx)
	var once sync.Once
	back = func() {
		t.Helper()
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), bound(startFor)) // the story's own may have ended
			defer cancel()
			if err := s.stack.StartAPIServers(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(back)
	return back
}

// after waits; there is nothing that could be waited for.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// expectAwayInWords looks at what people are told.
func (s *suite) expectAwayInWords(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		for program, args := range map[string][]string{"kubectl": {"get", "talosmachines"}, "ichor": {"machine", "list"}} {
			r := s.run(t, s.stack.Dir().Kubeconfig(), program, args...)
			if r.status == 0 || !strings.Contains(r.err, "currently unable to handle the request") {
				return fmt.Errorf("%s: status %d, %q, want to be told that the server is away", program, r.status, r.out+r.err)
			}
		}
		r := s.run(t, s.stack.Dir().Kubeconfig(), "kubectl", "get", "apiservice", artifacts.APIServiceName, "-o", `jsonpath={.status.conditions[?(@.type=="Available")].status}`)
		if r.out != "False" {
			return fmt.Errorf("the APIService says Available=%q", r.out)
		}
		return nil
	})
}

// expectKubernetesWorks reads and writes what isn't Ichor's.
func (s *suite) expectKubernetesWorks(t *testing.T) {
	t.Helper()
	made, err := s.kubernetes.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "without-ichor-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("create a ConfigMap without Ichor: %v", err)
		return
	}
	if err := s.kubernetes.CoreV1().ConfigMaps(made.Namespace).Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete a ConfigMap without Ichor: %v", err)
	}
	s.must(t, s.stack.Dir().Kubeconfig(), "kubectl", "get", "nodes")
}

func (s *suite) makeNamespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.kubernetes.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.kubernetes.CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "content"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *suite) deleteNamespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.kubernetes.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// gone is nil if there are no such namespaces.
func (s *suite) gone(t *testing.T, names ...string) error {
	t.Helper()
	for _, name := range names {
		namespace, err := s.kubernetes.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("namespace %s is %s: %+v", name, namespace.Status.Phase, namespace.Status.Conditions)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// account is what must be the same before and after: what the machines were told, the Nodes, and what is known of each
// machine.
type account struct {
	changes  map[string]uint64 // machine → calls that change one
	nodes    map[string]string // Node → UID
	machines map[string]string
}

// changing are the calls by which a machine is changed.
var changing = []string{"ApplyConfiguration", "Bootstrap", "EtcdRemoveMemberByID", "EtcdLeaveCluster", "EtcdForfeitLeadership", "Reboot", "Reset", "Shutdown", "Upgrade"}

func (s *suite) account(t *testing.T) account {
	t.Helper()
	a := account{map[string]uint64{}, map[string]string{}, map[string]string{}}
	all := s.stack.Fleet().Machines
	for i := range all {
		a.changes[all[i].Name] = changesOf(s.consoleOf(t, &all[i]))
	}
	nodes, err := s.kubernetes.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		a.nodes[nodes.Items[i].Name] = string(nodes.Items[i].UID)
	}
	for _, m := range s.machinesNow(t) {
		text, err := json.Marshal(map[string]any{
			"uid": m.UID, "deleted": m.DeletionTimestamp, "spec": m.Spec, "stage": m.Status.Stage, "phase": m.Status.Phase, "addresses": m.Status.Addresses,
			"inventory": m.Status.Inventory, "provisioning": m.Status.Provisioning, "node": m.Status.NodeName,
		})
		if err != nil {
			t.Fatal(err)
		}
		a.machines[m.Name] = string(text)
	}
	return a
}

func changesOf(status node.Status) uint64 {
	count := uint64(0)
	for _, method := range changing {
		count += status.Calls["/machine.MachineService/"+method].Count
	}
	return count
}

func (s *suite) machinesNow(t *testing.T) []v1alpha1.TalosMachine {
	t.Helper()
	var list *v1alpha1.TalosMachineList
	eventually(t, time.Minute, func() (err error) {
		list, err = s.admin.IchorV1alpha1().TalosMachines().List(t.Context(), metav1.ListOptions{})
		return err
	})
	return list.Items
}

// expectAccount holds what is now against what was.
func (s *suite) expectAccount(t *testing.T, before account) {
	t.Helper()
	now := s.account(t)
	for name, want := range before.changes {
		if got := now.changes[name]; got != want {
			t.Errorf("machine %s was changed %d times while the API was away", name, got-want)
		}
	}
	for name, want := range before.nodes {
		if got := now.nodes[name]; got != want {
			t.Errorf("Node %s had the UID %s, and has %q", name, want, got)
		}
	}
	for name, want := range before.machines {
		if got := now.machines[name]; got != want {
			t.Errorf("TalosMachine %s was\n%s\nand is\n%s", name, want, got)
		}
	}
}

// awayInformer is an informer of machines as the controller has one, and counts its answered questions for everything.
type awayInformer struct {
	store cache.Store
	lists atomic.Int64
}

func (s *suite) startInformer(t *testing.T) *awayInformer {
	t.Helper()
	informer := &awayInformer{}
	config := s.stack.Admin()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return listCounter{next, &informer.lists} })
	factory := externalversions.NewSharedInformerFactory(client(t, config), 0)
	informer.store = factory.Ichor().V1alpha1().TalosMachines().Informer().GetStore()
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	eventually(t, time.Minute, func() error { return informer.knows(s.machinesNow(t)) })
	return informer
}

// listCounter counts answers with everything: lists, and watches that begin with what there is.
type listCounter struct {
	next  http.RoundTripper
	lists *atomic.Int64
}

// RoundTrip passes on and counts.
func (c listCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(req)
	query := req.URL.Query()
	if err == nil && response.StatusCode == http.StatusOK && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true") {
		c.lists.Add(1)
	}
	return response, err
}

// knows is nil if the informer holds exactly these machines.
func (i *awayInformer) knows(machines []v1alpha1.TalosMachine) error {
	if have := len(i.store.ListKeys()); have != len(machines) {
		return fmt.Errorf("the informer knows %d machines, there are %d", have, len(machines))
	}
	for k := range machines {
		m := &machines[k]
		object, known, err := i.store.GetByKey(m.Name)
		if err != nil || !known || object.(*v1alpha1.TalosMachine).ResourceVersion != m.ResourceVersion {
			return fmt.Errorf("the informer doesn't know machine %s as of %s (%v)", m.Name, m.ResourceVersion, err)
		}
	}
	return nil
}

// uninstalledAPI takes the API away as a person who uninstalls Ichor does: the APIService first. No namespace waits for
// it then. Registered again, everything is there.
func uninstalledAPI(t *testing.T, s *suite) {
	kubeconfig := s.stack.Dir().Kubeconfig()
	before := s.account(t)
	registration := filepath.Join(t.TempDir(), "apiservice.json")
	if err := os.WriteFile(registration, s.registration(t), 0o600); err != nil {
		t.Fatal(err)
	}
	s.makeNamespaces(t, "uninstalled")
	s.must(t, kubeconfig, "kubectl", "delete", "apiservice", artifacts.APIServiceName)
	back := s.apiGone(t)
	s.deleteNamespaces(t, "uninstalled")
	eventually(t, time.Minute, func() error { return s.gone(t, "uninstalled") })
	// The second is said by a kubectl that remembers the resource from before.
	if r := s.run(t, kubeconfig, "kubectl", "get", "talosmachines"); r.status == 0 ||
		!strings.Contains(r.err, "doesn't have a resource type") && !strings.Contains(r.err, "could not find the requested resource") {
		t.Errorf("kubectl without the API: status %d, %q", r.status, r.out+r.err)
	}
	back()
	s.must(t, kubeconfig, "kubectl", "apply", "-f", registration)
	s.expectAccount(t, before)
}

// registration is the APIService as a person keeps it.
func (s *suite) registration(t *testing.T) []byte {
	t.Helper()
	var service map[string]any
	if err := json.Unmarshal([]byte(s.must(t, s.stack.Dir().Kubeconfig(), "kubectl", "get", "apiservice", artifacts.APIServiceName, "-o", "json")), &service); err != nil {
		t.Fatal(err)
	}
	delete(service, "status")
	service["metadata"] = map[string]any{"name": artifacts.APIServiceName}
	text, err := json.Marshal(service)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
