// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/identity"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// talosconfigKey is the key of the Secret.
	talosconfigKey = "talosconfig"
	// maxMembers bounds the members of a foreign etcd that are asked; etcd advises against more than seven.
	maxMembers = 16
	// etcdFor is how long an etcd that doesn't answer is asked again, from the creation of the reclaim: it may be electing.
	etcdFor = 20 * time.Second
)

// plan is how a machine would be reset.
type plan struct {
	wipe, keep []v1alpha1.ReclaimDisk
	bootID     string
	// graceful has the machine leave its etcd first.
	graceful bool
}

// inspect looks at a machine that was told nothing yet, and tells it to wipe itself if nothing speaks against it.
func (v *visit) inspect(ctx context.Context) (time.Duration, error) {
	v.r.Status.Phase = v1alpha1.ReclaimInspecting
	credentials, why, err := v.credentials(ctx)
	if err != nil {
		return 0, err
	}
	if why != "" {
		v.wait("%s", why)
		return lookSoon, nil
	}
	if managed, err := v.managed(ctx); err != nil {
		return 0, err
	} else if managed != "" {
		v.end(v1alpha1.ReclaimRefused, managed)
		return 0, nil
	}
	node, err := v.Dialer.DialConfigured(ctx, v.address, credentials)
	if err != nil {
		v.wait("the machine doesn't let Ichor in: %s", err)
		return lookAgain, nil
	}
	defer node.Close() //nolint:errcheck // what was said on it was answered
	p, why, err := v.judge(ctx, node, credentials)
	if err != nil {
		v.wait("%s", err)
		return lookAgain, nil
	}
	if why != "" {
		v.end(v1alpha1.ReclaimRefused, why)
		return 0, nil
	}
	status := &v.r.Status
	status.Phase, status.WillWipe, status.WillKeep, status.BootID = v1alpha1.ReclaimResetting, p.wipe, p.keep, p.bootID
	status.Message = fmt.Sprintf("wiping %s; keeping %s", listed(p.wipe), listed(p.keep))
	v.set(v1alpha1.ConditionComplete, metav1.ConditionFalse, string(v1alpha1.ReclaimResetting), status.Message)
	return v.reset(ctx, node, p)
}

// credentials reads the client configuration of the machine's own cluster, or says why there is none. Nothing of it is
// ever repeated.
func (v *visit) credentials(ctx context.Context) (credentials talos.Credentials, why string, err error) {
	name := v.r.Spec.TalosconfigSecretRef.Name
	secret, err := v.Secrets.Secrets(v1alpha1.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return credentials, fmt.Sprintf("there is no Secret %s in namespace %s; create it with the key %s", name, v1alpha1.SystemNamespace, talosconfigKey), nil
	}
	if err != nil {
		return credentials, "", fmt.Errorf("read Secret %s/%s: %w", v1alpha1.SystemNamespace, name, err)
	}
	credentials, err = talos.ParseTalosconfig(secret.Data[talosconfigKey])
	if err != nil {
		return credentials, fmt.Sprintf("the key %s of Secret %s/%s can't be used: %s", talosconfigKey, v1alpha1.SystemNamespace, name, err), nil
	}
	return credentials, "", nil
}

// managed says that Ichor has a machine of this UUID, whatever its name. The API itself is asked: a cache may be old.
func (v *visit) managed(ctx context.Context) (string, error) {
	all, err := v.Client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("look for a machine of UUID %s: %w", v.r.Spec.UUID, err)
	}
	for i := range all.Items {
		if m := &all.Items[i]; v.named(m.Spec.Identity) {
			return fmt.Sprintf("the UUID is that of TalosMachine %s, which Ichor has; nothing was done. To reset one that it manages, delete that object", m.Name), nil
		}
	}
	return "", nil
}

// named tells whether this is the machine whose UUID a person typed. What has no UUID is nobody.
func (v *visit) named(who v1alpha1.MachineIdentity) bool {
	return who.UUID != "" && identity.IsUUID(who.UUID) && strings.EqualFold(who.UUID, v.r.Spec.UUID)
}

// judge reads over one connection all that decides whether the machine may be wiped, and how. Why says what speaks against
// it; an error is about not having found out.
func (v *visit) judge(ctx context.Context, node talos.ConfiguredNode, credentials talos.Credentials) (p *plan, why string, err error) {
	who, err := node.Identity(ctx)
	if err != nil {
		return nil, "", err
	}
	if !v.named(who) {
		return nil, fmt.Sprintf("the machine at %s has the UUID %q, not %s; nothing was done to it", v.address, who.UUID, v.r.Spec.UUID), nil
	}
	facts, err := node.Facts(ctx)
	if err != nil {
		return nil, "", err
	}
	p = &plan{graceful: true}
	if p.wipe, p.keep, why = fate(facts.Inventory, facts.SystemDisk, v.r.Spec.WipeDisks); why != "" {
		return nil, why + "; nothing was done to it", nil
	}
	if p.bootID, err = node.BootID(ctx); err != nil {
		return nil, "", err
	}
	running, err := node.RunningConfiguration(ctx)
	if talos.Code(err) == codes.PermissionDenied {
		return nil, "the talosconfig isn't an administrator's (role os:admin), which a reset takes; nothing was done", nil
	}
	if err != nil {
		return nil, "", err
	}
	role, err := machineconfig.Role(running)
	if err != nil {
		return nil, "", fmt.Errorf("what the machine runs can't be read: %w", err)
	}
	if role != v1alpha1.RoleControlPlane {
		return p, "", nil
	}
	return v.withoutVote(ctx, node, credentials, p)
}

// withoutVote finds out whether the machine's cluster keeps its etcd's quorum without it.
func (v *visit) withoutVote(ctx context.Context, node talos.ConfiguredNode, credentials talos.Credentials, p *plan) (*plan, string, error) {
	members, err := v.members(ctx, node, credentials)
	if err != nil {
		if v.r.Spec.AcceptQuorumLoss {
			p.graceful = false
			return p, "", nil
		}
		if v.Clock.Since(v.r.CreationTimestamp.Time) < etcdFor {
			return nil, "", err
		}
		return nil, fmt.Sprintf("it is a control plane, and its etcd can't be asked who else there is (%s); nothing was done. A reclaim with spec.acceptQuorumLoss goes on regardless", err), nil
	}
	if why := loses(members); why != "" {
		if !v.r.Spec.AcceptQuorumLoss {
			return nil, fmt.Sprintf("its own cluster would lose its etcd: %s; nothing was done. A reclaim with spec.acceptQuorumLoss goes on regardless", why), nil
		}
		p.graceful = false // etcd wouldn't let it go, and then it isn't wiped
		return p, "", nil
	}
	p.graceful = leaves(members)
	return p, "", nil
}

// members are those of the machine's own etcd; each of the others is asked how it is, at the address that etcd has of it.
func (v *visit) members(ctx context.Context, node talos.ConfiguredNode, credentials talos.Credentials) ([]member, error) {
	all, err := node.EtcdMembers(ctx)
	if err != nil {
		return nil, err
	}
	own, err := node.EtcdStatus(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) > maxMembers {
		return nil, fmt.Errorf("etcd has %d members, and at most %d are asked", len(all), maxMembers)
	}
	members := make([]member, len(all))
	var asking sync.WaitGroup
	for i, each := range all {
		members[i] = member{EtcdMember: each, own: each.ID == own.MemberID}
		if !members[i].own && !each.Learner {
			asking.Go(func() { members[i].healthy = v.healthy(ctx, each, credentials) })
		}
	}
	asking.Wait()
	return members, nil
}

// healthy asks a member by itself. Whoever doesn't answer as this member doesn't count.
func (v *visit) healthy(ctx context.Context, each talos.EtcdMember, credentials talos.Credentials) bool {
	for _, peer := range each.PeerURLs[:min(len(each.PeerURLs), 4)] {
		parsed, err := url.Parse(peer)
		if err != nil {
			continue
		}
		address, err := netip.ParseAddr(parsed.Hostname())
		if err != nil {
			continue
		}
		other, err := v.Dialer.DialConfigured(ctx, address, credentials)
		if err != nil {
			continue
		}
		status, err := other.EtcdStatus(ctx)
		_ = other.Close()
		if err == nil && status.MemberID == each.ID && status.KnowsLeader() {
			return true
		}
	}
	return false
}
