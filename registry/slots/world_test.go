// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/install"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/registry"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/registry/talosmachines"
)

// world is the whole storage of the API server, with all its rules, on the model of a storage. It runs one player at a
// time, up to that one's next step.
type world struct {
	// objects, history, policy and clock are what the running player sees; changes is what it has written.
	objects map[string]runtime.Object
	history map[string][]runtime.Object
	// policy is what the host cluster's mutating admission does to approvals.
	policy policy
	// clock counts how often the time passed in which an approval may be on its way.
	clock   int
	changes []change
	current *player
	// cached: reads from a cache are possible, so what a cache may say is part of the state.
	cached bool
	// once: whoever asks for an approval is gone before a second attempt.
	once     bool
	interned map[string]runtime.Object

	codec   runtime.Codec // dry runs copy by it
	rest    map[string]rest.Storage
	gate    *slots.Gate
	without string
}

// newWorld builds the registry, without one of the protocol's rules if a name is given.
func newWorld(t *testing.T, without string, grace time.Duration) *world {
	t.Helper()
	w := &world{without: without, cached: without == "quorum", interned: map[string]runtime.Object{}}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	w.codec = serializer.NewCodecFactory(scheme).LegacyCodec(v1alpha1.SchemeGroupVersion)
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	options := []slots.Option{
		slots.WithGrace(grace), slots.WithClock(func() time.Time { return epoch.Add(time.Duration(w.clock) * grace) }), slots.WithTokens(w.token), slots.WithoutQueue(),
	}
	if leave := slots.Without(without); leave != nil {
		options = append(options, leave)
	}
	built, err := registry.New(scheme, w, allow, talosmachines.NodeStreams{}, options...)
	if err != nil {
		t.Fatalf("build registry: %v", err)
	}
	w.rest, w.gate = built.Storage(), built.Gate()
	return w
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// token is a new one for whoever's turn it is. It doesn't depend on what others do, so that states can be compared.
func (w *world) token() string {
	if w.current == nil {
		return "none"
	}
	w.current.tokens++
	return fmt.Sprintf("%s#%d", w.current.name, w.current.tokens)
}

// load shows the content to whoever runs next.
func (w *world) load(c *content) {
	w.objects, w.history = maps.Clone(c.objects), maps.Clone(c.history)
	if w.objects == nil {
		w.objects = map[string]runtime.Object{}
	}
	if w.history == nil {
		w.history = map[string][]runtime.Object{}
	}
	w.policy, w.clock, w.changes = c.policy, c.clock, nil
}

// Objects of the scenes.

func clusterKey(name string) string { return "/talosclusters/" + name }
func machineKey(name string) string { return "/talosmachines/" + name }

func (w *world) cluster(name string) *ichor.TalosCluster {
	c, _ := w.objects[clusterKey(name)].(*ichor.TalosCluster)
	return c
}

// addCluster makes a cluster whose UID tells which of its name it is.
func (w *world) addCluster(name string, uid types.UID, count int32) {
	c := &ichor.TalosCluster{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: uid, Generation: 1, Finalizers: []string{v1alpha1.ClusterFinalizer}, CreationTimestamp: metav1.Unix(1, 0),
	}}
	c.Spec = ichor.TalosClusterSpec{
		TalosVersion: "v1.14.5", KubernetesVersion: "v1.36.6", SecretsPolicy: ichor.SecretsPolicyRequire, DriftPolicy: ichor.DriftPolicyReport,
		SecretsRef:   ichor.SecretReference{Namespace: "ichor-system", Name: "prod-secrets"},
		ControlPlane: ichor.ControlPlane{Count: count, Endpoint: ichor.Endpoint{Host: "10.0.0.10", Port: 6443}},
		Network:      ichor.ClusterNetwork{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}, DNSDomain: "cluster.local"},
		Discovery:    ichor.Discovery{Interval: metav1.Duration{Duration: 5 * time.Minute}},
		Install:      ichor.Install{Registry: "factory.talos.dev"}, Apply: ichor.ApplyPolicy{MaxParallel: 10},
		Reprovision: ichor.Reprovision{ControlPlanes: ichor.ReprovisionAutomatic}, DeletionPolicy: ichor.ClusterDeletionRefuse,
	}
	slots.Count(c)
	w.put(clusterKey(name), c)
}

const shown = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="

// addMachine makes a pending machine, of a cluster or of none yet.
func (w *world) addMachine(name string, uid types.UID, cluster string) {
	m := &ichor.TalosMachine{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: uid, Generation: 1, Finalizers: []string{v1alpha1.MachineFinalizer}, CreationTimestamp: metav1.Unix(1, 0),
	}}
	m.Spec = ichor.TalosMachineSpec{
		ClusterRef: ichor.ClusterReference{Name: cluster}, Origin: ichor.MachineDiscovered, ApprovalState: ichor.ApprovalPending,
		Identity:       ichor.MachineIdentity{UUID: name, SerialNumber: "SN-" + name, MACAddresses: []string{fmt.Sprintf("02:00:5e:00:53:%02x", name[0])}},
		DeletionPolicy: ichor.DeletionOrphan,
	}
	m.Status.MaintenanceFingerprint = shown
	m.Status.Inventory = &ichor.MachineInventory{Disks: []ichor.DiskInventory{{Device: "/dev/sda", Size: resource.MustParse("512G"), Serial: "S1"}}}
	w.put(machineKey(name), m)
}

// describe is all of an object that the protocol and its invariants see.
func describe(object runtime.Object) string {
	switch o := object.(type) {
	case nil:
		return ": isn't there"
	case *ichor.TalosMachine:
		text := fmt.Sprintf(": %s v%s %s", o.UID, o.ResourceVersion, o.Spec.ApprovalState)
		if o.Spec.Role != "" {
			text += fmt.Sprintf(" as %s %q", o.Spec.Role, o.Spec.Hostname)
		}
		if o.Spec.ClusterRef.Name != "" {
			text += " in " + o.Spec.ClusterRef.Name
		}
		if o.Spec.Approval != nil && o.Spec.Approval.ClusterUID != "" {
			text += fmt.Sprintf(" (%s)", o.Spec.Approval.ClusterUID)
		}
		return text + describeEnd(&o.ObjectMeta)
	case *ichor.TalosCluster:
		text := fmt.Sprintf(": %s v%s limit %d, slots [", o.UID, o.ResourceVersion, slots.Limit(o))
		for _, slot := range o.Status.ControlPlaneSlots {
			text += fmt.Sprintf(" %s %q token %q", slot.MachineUID, slot.Hostname, slot.Token)
			if passed := slot.At.Sub(epoch); passed > 0 {
				text += fmt.Sprintf(" at %s", passed)
			}
		}
		return text + " ]" + describeEnd(&o.ObjectMeta)
	}
	return fmt.Sprintf(": %T", object)
}

func describeEnd(o *metav1.ObjectMeta) string {
	if o.DeletionTimestamp == nil {
		return ""
	}
	return fmt.Sprintf(", being deleted, %d finalizers", len(o.Finalizers))
}

// approved is how many control planes are approved, in all clusters.
func (c *content) approved() int {
	n := 0
	for _, object := range c.objects {
		if m, ok := object.(*ichor.TalosMachine); ok && m.Spec.ApprovalState == ichor.ApprovalApproved && m.Spec.Role == ichor.RoleControlPlane {
			n++
		}
	}
	return n
}

// approved are the approved control planes of a cluster, by name.
func (w *world) approved(cluster string) []*ichor.TalosMachine {
	var out []*ichor.TalosMachine
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		m, ok := w.objects[key].(*ichor.TalosMachine)
		if ok && m.Spec.ApprovalState == ichor.ApprovalApproved && m.Spec.Role == ichor.RoleControlPlane && m.Spec.ClusterRef.Name == cluster {
			out = append(out, m)
		}
	}
	return out
}

// check holds what is stored to the invariants, and says what is wrong.
func (w *world) check() string {
	perCluster := map[types.UID]int{}
	for _, object := range w.objects {
		m, ok := object.(*ichor.TalosMachine)
		if !ok || m.Spec.ApprovalState != ichor.ApprovalApproved || m.Spec.Role != ichor.RoleControlPlane {
			continue
		}
		perCluster[m.Spec.Approval.ClusterUID]++
		switch c := w.cluster(m.Spec.ClusterRef.Name); {
		case c == nil || c.UID != m.Spec.Approval.ClusterUID:
			return fmt.Sprintf("machine %s is approved into cluster %s with UID %s, which isn't there", m.Name, m.Spec.ClusterRef.Name, m.Spec.Approval.ClusterUID)
		case !slices.ContainsFunc(c.Status.ControlPlaneSlots, func(s ichor.ControlPlaneSlot) bool { return s.MachineUID == m.UID }):
			return fmt.Sprintf("machine %s (%s) is approved without a slot", m.Name, m.UID)
		}
	}
	for _, object := range w.objects {
		c, ok := object.(*ichor.TalosCluster)
		if !ok {
			continue
		}
		if limit := slots.Limit(c); perCluster[c.UID] > limit || len(c.Status.ControlPlaneSlots) > limit {
			return fmt.Sprintf("cluster %s has %d approved control planes and %d slots, its limit is %d", c.Name, perCluster[c.UID], len(c.Status.ControlPlaneSlots), limit)
		}
		hostnames := map[string]bool{}
		for _, m := range w.approved(c.Name) {
			if m.Spec.Hostname != "" && hostnames[m.Spec.Hostname] {
				return fmt.Sprintf("two approved control planes have the hostname %s", m.Spec.Hostname)
			}
			hostnames[m.Spec.Hostname] = true
		}
	}
	return ""
}

// settle is for when nobody acts any more, and time has passed: the reaper runs once, and then the slots are those of the
// approved.
func (w *world) settle() string {
	w.clock += 2
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		c, ok := w.objects[key].(*ichor.TalosCluster)
		if !ok {
			continue
		}
		if _, err := w.gate.Reap(context.Background(), c.Name); err != nil {
			return fmt.Sprintf("reap slots in the end: %v", err)
		}
		var held, approved []string
		for _, slot := range w.cluster(c.Name).Status.ControlPlaneSlots {
			held = append(held, fmt.Sprintf("%s %q", slot.MachineUID, slot.Hostname))
		}
		for _, m := range w.approved(c.Name) {
			approved = append(approved, fmt.Sprintf("%s %q", m.UID, m.Spec.Hostname))
		}
		slices.Sort(held)
		slices.Sort(approved)
		if !slices.Equal(held, approved) {
			return fmt.Sprintf("in the end cluster %s has slots of [%s], approved are [%s]", c.Name, strings.Join(held, ", "), strings.Join(approved, ", "))
		}
	}
	return ""
}

func userContext() context.Context {
	return genericrequest.WithUser(genericrequest.WithNamespace(context.Background(), ""), &user.DefaultInfo{Name: "operator"})
}

// hold puts a slot into prod before anybody acts.
func (w *world) hold(slot ichor.ControlPlaneSlot) {
	slot.At = metav1.NewTime(epoch)
	c := w.cluster("prod").DeepCopy()
	c.Status.ControlPlaneSlots = append(c.Status.ControlPlaneSlots, slot)
	slots.Count(c)
	w.put(clusterKey("prod"), c)
}
