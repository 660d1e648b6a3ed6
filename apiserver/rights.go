// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
)

const (
	// rightsInterval is the time between two questions while a right is missing.
	rightsInterval = 5 * time.Second
	// rightsTimeout bounds one round of questions.
	rightsTimeout = 30 * time.Second
)

// neededRights are what admission reads. Without one of them every write is refused as "not yet ready to handle
// request", which says nothing to whoever forgot it.
var neededRights = []struct{ group, resource string }{
	{"", "namespaces"},
	{"admissionregistration.k8s.io", "mutatingwebhookconfigurations"},
	{"admissionregistration.k8s.io", "validatingwebhookconfigurations"},
	{"admissionregistration.k8s.io", "mutatingadmissionpolicies"},
	{"admissionregistration.k8s.io", "mutatingadmissionpolicybindings"},
	{"admissionregistration.k8s.io", "validatingadmissionpolicies"},
	{"admissionregistration.k8s.io", "validatingadmissionpolicybindings"},
}

// rights asks the kube-apiserver whether the server's own account may read what it has to, until it may.
type rights struct {
	reviews authorizationclient.SelfSubjectAccessReviewInterface

	mu      sync.Mutex
	missing error
}

// addRightsCheck makes readiness say which right is missing.
func addRightsCheck(config *genericapiserver.RecommendedConfig) error {
	kube, err := kubernetes.NewForConfig(config.ClientConfig)
	if err != nil {
		return err
	}
	r := &rights{reviews: kube.AuthorizationV1().SelfSubjectAccessReviews(), missing: errors.New("not asked yet")}
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

// watch asks until nothing is missing or the server ends.
func (r *rights) watch(ctx context.Context) {
	logger := klog.FromContext(ctx)
	_ = wait.PollUntilContextCancel(ctx, rightsInterval, true, func(ctx context.Context) (bool, error) {
		missing := r.ask(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		if missing != nil && (r.missing == nil || r.missing.Error() != missing.Error()) {
			logger.Error(missing, "The server's account lacks rights; writes are refused until it has them")
		}
		r.missing = missing
		return missing == nil, nil
	})
}

// ask returns which rights are missing.
func (r *rights) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	var missing []string
	for _, needed := range neededRights {
		for _, verb := range []string{"list", "watch"} {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: needed.group, Resource: needed.resource},
			}}
			answer, err := r.reviews.Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask the kube-apiserver for the server's own rights: %w", err)
			}
			if !answer.Status.Allowed {
				missing = append(missing, fmt.Sprintf("%s %s", verb, strings.TrimSuffix(needed.resource+"."+needed.group, ".")))
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("grant the server's account: %s", strings.Join(missing, ", "))
	}
	return nil
}
