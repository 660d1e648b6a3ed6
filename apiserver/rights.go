// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	// rightsInterval is the time between two rounds of questions while a right is missing, and rightsCalm while none is.
	rightsInterval = 5 * time.Second
	rightsCalm     = time.Minute
	// rightsTimeout bounds one round of questions.
	rightsTimeout = 30 * time.Second
)

// right is what the server's account must be allowed.
type right struct {
	verbs                            []string
	group, resource, namespace, name string
}

// String is how a person writes it who grants it, for instance "list,watch namespaces".
func (r right) String() string {
	text := strings.Join(r.verbs, ",") + " " + strings.TrimSuffix(r.resource+"."+r.group, ".")
	if r.namespace != "" {
		text += " " + r.namespace + "/" + r.name
	}
	return text
}

var (
	following = []string{"list", "watch"}
	asking    = []string{"create"}
)

// baseRights are what every server needs: asking who somebody is and what he may, and what admission reads. Without one
// of the latter every write is refused as "not yet ready to handle request", which says nothing to whoever forgot it.
var baseRights = []right{
	{verbs: asking, group: "authentication.k8s.io", resource: "tokenreviews"},
	{verbs: asking, group: "authorization.k8s.io", resource: "subjectaccessreviews"},
	{verbs: following, resource: "namespaces"},
	{verbs: following, group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations"},
	{verbs: following, group: "admissionregistration.k8s.io", resource: "validatingwebhookconfigurations"},
	{verbs: following, group: "admissionregistration.k8s.io", resource: "mutatingadmissionpolicies"},
	{verbs: following, group: "admissionregistration.k8s.io", resource: "mutatingadmissionpolicybindings"},
	{verbs: following, group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicies"},
	{verbs: following, group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicybindings"},
}

// neededRights are those that a server with the options needs.
func (o *Options) neededRights() []right {
	needed := slices.Clone(baseRights)
	if !o.Recommended.Authentication.SkipInClusterLookup {
		needed = append(needed, right{
			verbs: []string{"get", "list", "watch"}, resource: "configmaps", namespace: metav1.NamespaceSystem, name: trustConfigMap,
		})
	}
	if o.Recommended.Features.EnablePriorityAndFairness {
		needed = append(needed,
			right{verbs: following, group: "flowcontrol.apiserver.k8s.io", resource: "flowschemas"},
			right{verbs: following, group: "flowcontrol.apiserver.k8s.io", resource: "prioritylevelconfigurations"})
	}
	return needed
}

// NeededRights are the rules that a role of the server's account has to have.
func (o *Options) NeededRights() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, r := range o.neededRights() {
		rule := rbacv1.PolicyRule{APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: slices.Clone(r.verbs)}
		if r.name != "" {
			rule.ResourceNames = []string{r.name}
		}
		rules = append(rules, rule)
	}
	return rules
}

// errUnasked says that the kube-apiserver gave no answer, which is no denial.
var errUnasked = errors.New("ask the kube-apiserver for the server's own rights")

// rights asks the kube-apiserver whether the server's own account may do what it has to, for as long as the server runs.
type rights struct {
	reviews authorizationclient.SelfSubjectAccessReviewInterface
	needed  []right

	mu      sync.Mutex
	missing error
}

// awaitRights refuses to start without a right that the server needs.
func (o *Options) awaitRights(ctx context.Context) (*rights, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Recommended.CoreAPI.CoreAPIKubeconfigPath)
	if err != nil {
		return nil, fmt.Errorf("find the kube-apiserver: %w", err)
	}
	// A round is some twenty small questions, more than a client's own limits let through at once.
	config.QPS, config.Burst = 50, 50
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	r := &rights{reviews: kube.AuthorizationV1().SelfSubjectAccessReviews(), needed: o.neededRights()}
	return r, r.await(ctx, o.RightsPatience)
}

// guard makes the readiness of a running server say which right was taken from it.
func (r *rights) guard(config *genericapiserver.Config) error {
	config.AddReadyzChecks(healthz.NamedCheck("ichor-rights", func(*http.Request) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.missing
	}))
	return config.AddPostStartHook("ichor-rights", func(hook genericapiserver.PostStartHookContext) error {
		go r.watch(hook)
		return nil
	})
}

// await asks until nothing is missing, or returns what is missing when the patience ends.
func (r *rights) await(ctx context.Context, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := r.ask(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		klog.FromContext(ctx).Info("The server's account lacks rights; waiting for them", "reason", err.Error())
		select {
		case <-ctx.Done():
			return err
		case <-time.After(min(time.Second, patience)):
		}
	}
}

// watch asks until the server ends.
func (r *rights) watch(ctx context.Context) {
	logger := klog.FromContext(ctx)
	interval := rightsCalm
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Jitter(interval, 0.2)):
		}
		missing := r.ask(ctx)
		if errors.Is(missing, errUnasked) {
			continue // without a kube-apiserver there is no answer, and the last one stands
		}
		r.mu.Lock()
		if missing != nil && (r.missing == nil || r.missing.Error() != missing.Error()) {
			logger.Error(missing, "The server's account lacks rights; the server isn't ready until it has them")
		}
		r.missing = missing
		r.mu.Unlock()
		if interval = rightsCalm; missing != nil {
			interval = rightsInterval
		}
	}
}

// ask returns which rights are missing.
func (r *rights) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	var missing []string
	for _, needed := range r.needed {
		lacking := needed
		lacking.verbs = nil
		for _, verb := range needed.verbs {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: needed.group, Resource: needed.resource, Namespace: needed.namespace, Name: needed.name,
				},
			}}
			answer, err := r.reviews.Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("%w: %w", errUnasked, err)
			}
			if !answer.Status.Allowed {
				lacking.verbs = append(lacking.verbs, verb)
			}
		}
		if len(lacking.verbs) > 0 {
			missing = append(missing, lacking.String())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("grant the server's account: %s (the manifests of artifacts/install do)", strings.Join(missing, "; "))
	}
	return nil
}
